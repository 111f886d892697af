"""`ceilings`: the best that any order of the candidates reaches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from rankproof.commands.options import InputOptions, Order, Qrels, Runs, Seed
from rankproof.commands.registry import Option, Source, command

if TYPE_CHECKING:
    from rankproof.tradeoffs.ceiling_report import CeilingReport


@command(group="RAG")
def ceilings(
    qrels: Qrels,
    runs: Runs,
    measures: Annotated[
        Any,
        Option(("-m", "--measure"), "MEASURE,...", default_text="RAnWG,NRecall4"),
        "Such as RAnWG, at every K of --at, or nDCG@10.",
    ] = ("RAnWG", "NRecall4"),
    *,
    at: Annotated[Sequence[int], Option(metavar="K,K,...", minimum=1), "Cutoffs."] = (10, 20, 30),
    pool: Annotated[
        Any,
        Source("RUN,...", "pool"),
        "Candidates that may be reordered; several are united. By default those of each run.",
    ] = None,
    pool_depth: Annotated[
        int | None,
        Option(minimum=1, default_text="all"),
        "Take this many from the top of each pool.",
    ] = None,
    correct: Annotated[
        Any,
        Source("FILE", "correct"),
        "Answers, with columns query and correct (0 to 1): adds Acc|Hit, accuracy on the queries "
        "whose passages of grade 4 and 5 are all in the top K.",
    ] = None,
    sources: Annotated[
        Any,
        Source("FILE", "sources"),
        "Sources, with columns doc and source: adds RAnWG in which a repeat of a source counts "
        "--beta.",
    ] = None,
    beta: Annotated[float, "What a repeat of a source counts, 0 to 1."] = 0.5,
    sensitivity: Annotated[
        bool,
        "Also RAnWG at the first K under 24 choices of its constants, and whether the order of the "
        "runs changes.",
    ] = False,
    seed: Seed = 0,
    order: Annotated[
        Order | None, Option(default_text="input"), "Tie-break behind the value as listed."
    ] = None,
    **options: Unpack[InputOptions],
) -> CeilingReport:
    """Say how much better ranking, and better retrieval, could add to a score.

    Better ranking could add PROC − score, where PROC is the best value that any order of the same
    candidates reaches. What all judged passages allow beyond PROC only better retrieval can add.

    $ rankproof ceilings qrels.txt run.trec -m nDCG@10
    $ rankproof ceilings qrels.txt run.trec -m RR@10,R@10 --wide
    $ rankproof ceilings qrels.txt reranked.trec --pool first-stage.trec --pool-depth 100

    >>> report = rp.ceilings("try/qrels.txt", "try/plain.trec", "nDCG@5")
    >>> report.ceilings[0]["nDCG@5"].proc >= report.ceilings[0]["nDCG@5"].actual
    True
    """
    from rankproof.commands.inputs import (
        check_judgments_first,
        name_runs,
        read_judgments,
        reading,
    )
    from rankproof.data import read_run
    from rankproof.tradeoffs.accuracy import accuracy_given_hit
    from rankproof.tradeoffs.ceiling_report import CeilingReport
    from rankproof.tradeoffs.ceilings import ceilings as measure_ceilings
    from rankproof.tradeoffs.ceilings import measures_at
    from rankproof.tradeoffs.novelty import novelty
    from rankproof.tradeoffs.pairs import read_pairs
    from rankproof.tradeoffs.sensitivity import sensitivity as vary_constants

    check_judgments_first("ceilings", qrels, runs)
    cutoffs, run_format, tie_break = sorted(set(at)), options.get("input_format"), order or "input"
    parsed = measures_at(measures, cutoffs)
    named = name_runs(runs)
    judgments = read_judgments(qrels, options.get("qrels_format"))
    pools = [
        read_run(source, name=name, format=run_format)
        for name, source in ({} if pool is None else name_runs(pool)).items()
    ]
    answers = None if correct is None else read_pairs(correct, "query", "correct")
    origins = None if sources is None else read_pairs(sources, "doc", "source")
    reports, accuracies, novelties, kept = [], [], [], {}
    with reading(named):
        for name, source in named.items():  # one run at a time is held
            run = read_run(source, name=name, format=run_format)
            reports.append(
                measure_ceilings(
                    run,
                    judgments,
                    parsed,
                    pool=pools or None,
                    pool_depth=pool_depth,
                    order=tie_break,
                    seed=seed,
                )
            )
            for k in cutoffs:
                if answers is not None:
                    hit = accuracy_given_hit(run, judgments, answers, k, order=tie_break, seed=seed)
                    accuracies.append((run.name, hit))
                if origins is not None:
                    novelties.append(
                        novelty(run, judgments, origins, k, beta=beta, order=tie_break)
                    )
            if sensitivity:
                kept[run.name] = run
    return CeilingReport(
        ceilings=reports,
        accuracy=None if answers is None else accuracies,
        novelty=None if origins is None else novelties,
        sensitivity=vary_constants(kept, judgments, cutoffs[0]) if sensitivity else None,
    )
