"""Run every configuration of a grid on one corpus: quality, ceilings, latency, cost.

    corpus ─ vectors ─ indexes ─ lists ─ pools ─ scores ─▶ runs ─▶ configurations.parquet
                                    └───── times ─────┘            per_query.parquet, sweep.json

What configurations share is made once (`retrieval/workshop.py`) and kept in the folder, so that an
interrupted or enlarged sweep repeats nothing.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from rankproof.data import read_qrels
from rankproof.data.beir import Corpus, read_answers, read_corpus
from rankproof.data.scales import scale_text
from rankproof.data.tables import SET_SCALE, Qrels
from rankproof.data.trec import write_trec
from rankproof.evaluation.streaming.merging import select_queries
from rankproof.foundation.errors import InputError, first_line, shorten
from rankproof.foundation.files import WriteError, claim_folder, write_atomically
from rankproof.foundation.locks import Lock
from rankproof.foundation.manifest import digest, manifest
from rankproof.foundation.phrasing import as_sentence, out_of, plural, typed
from rankproof.foundation.redaction import redact
from rankproof.foundation.version import __version__
from rankproof.presentation.charts import Chart
from rankproof.presentation.display import Displayed
from rankproof.presentation.json_values import plain
from rankproof.presentation.judged_column import NOTE, any_unjudged
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Column, Table
from rankproof.presentation.terminal import shorten_middle
from rankproof.retrieval.chunks import SPAN
from rankproof.retrieval.identity import environment_digest, is_reproducible, value_identity
from rankproof.retrieval.workshop import Texts, Workshop
from rankproof.tradeoffs.answers import (
    ANSWERS,
    AnswersSettings,
    answer_prompts,
    correlations,
    describe_answers,
    prompt_documents,
    summarize_answers,
)
from rankproof.tradeoffs.chunked import cut_with_judgments
from rankproof.tradeoffs.configuration_table import NAME_WIDTH, configuration_table
from rankproof.tradeoffs.latency import Latency
from rankproof.tradeoffs.load import describe_load
from rankproof.tradeoffs.outcomes import Costs, build_tables
from rankproof.tradeoffs.plan import NONE, SETS, Configuration, SweepSettings, configurations
from rankproof.tradeoffs.recommend import Choice, Recommendation, quality_chart, recommend
from rankproof.tradeoffs.results import (
    AT_PROMPT,
    CONFIGURATIONS,
    EARLIER,
    JUDGEMENTS,
    LISTS,
    MANIFEST,
    PER_QUERY,
    TEXTS,
    Results,
    check_present,
    currency_sign,
    find_row,
    interval_cell,
    read_results,
)
from rankproof.tradeoffs.stack import Stack
from rankproof.tradeoffs.timing import PACKAGES, Timing, drive_stacks
from rankproof.unjudged.bounds import grades_of
from rankproof.unjudged.judging_order import Grader, fill_holes

LOAD = "load.parquet"
QUESTIONS = "questions.parquet"  # as typed and as searched, where a rewriter is named
RUNS = "runs"  # of each configuration, in TREC format
FINISHED = "finished"  # in work/: digest of everything that decided the folder's content
OWN_FILES = (
    *(CONFIGURATIONS, PER_QUERY, LISTS, JUDGEMENTS, f"{JUDGEMENTS}.scale", LOAD, MANIFEST),
    *(QUESTIONS, RUNS, TEXTS, EARLIER, ANSWERS, "report.html"),
    *("work", "sweep.lock", "sweep.owner"),
)

_SHOWN = 10  # configurations in the table
_PROC_IS_IDEAL = (
    "every judged passage is a candidate, so better retrieval cannot show in PROC: judge passages "
    "of other retrievers first"
)
_METHOD = (
    "verdict: 95% interval of the paired difference from the best, holding for all configurations "
    "together (max-T of bootstrap-t; the best is chosen again in each resample).",
    "MB: memory of all indexes. p95 ms: of single queries on the machine of the sweep.",
)
_PASSAGE_BEGINNING = 400  # characters of a passage that are kept for display


@dataclass(frozen=True, slots=True, repr=False)
class Swept(Displayed):
    """The results of a sweep and its folder."""

    kind: ClassVar[str] = "sweep"
    folder: Path
    results: Results
    load: pl.DataFrame | None = None  # engine and rate: p50, p95, p99, errors

    @property
    def configurations(self) -> pl.DataFrame:
        """One row per configuration, every column."""
        return self.results.frame

    @property
    def per_query(self) -> pl.DataFrame:
        """configuration, query, measure, value, min, max."""
        assert self.results.per_query is not None
        return self.results.per_query

    @property
    def manifest(self) -> dict[str, Any]:
        """How the sweep was made, what to know of it, and its prices."""
        assert self.results.manifest is not None
        return self.results.manifest

    def recommend(self, **limits: Any) -> Recommendation:
        """Choose a configuration: `rankproof.tradeoffs.recommend` of this sweep."""
        return recommend(self.results, **limits)

    def __repr__(self) -> str:
        return f"<sweep of {plural(len(self.configurations), 'configuration')} in {self.folder}>"

    @property
    def warnings(self) -> list[str]:
        """What to know of the results."""
        return list(self.manifest["notes"])

    def to_dict(self) -> dict[str, Any]:
        """What `rankproof sweep --format json` prints."""
        data = {
            "manifest": self.manifest,
            "configurations": plain(self.configurations.to_dicts()),
        }
        if self.load is not None:
            data["load"] = self.load.drop("key").to_dicts()
        return data

    def figures(self) -> dict[str, float]:
        """Quality, latency and cost of the best configuration."""
        best = self.configurations.filter("best").row(0, named=True)
        names = (self.manifest["best_by"], "latency_p95_ms", "cost_per_1000")
        return {name: float(best[name]) for name in names}

    def summary(self) -> Summary:
        """The best configuration, what could change that, and what dynamic pools saved."""
        manifest = self.manifest
        choice = self._choice()
        notes = [*map(as_sentence, manifest.get("caveats", ())), *self._dynamic_notes()]
        for part in ("answers", "load"):
            notes += manifest.get(part, {}).get("words", [])
        if choice is not None and choice.unsettled:
            comparisons = plural(len(choice.unsettled), "comparison")
            notes.append(
                f"Unjudged passages could change {comparisons} (`holes: judge` grades them)."
            )
        prices = manifest["prices"]
        details = [
            *map(as_sentence, manifest["notes"]),
            f"Prices of {prices['date']} ({prices['source']}).",
            *_METHOD,
        ]
        next_step = f"rankproof recommend {typed(self.folder)}" if choice else ""
        return Summary.of(self._answer(choice), notes, next_step=next_step, details=details)

    def _answer(self, choice: Choice | None) -> str:
        """Say which configuration is best, and whether others are as good."""
        measure = self.manifest["best_by"]
        over = plural(self.manifest["queries"], "query")
        if choice is None:
            return f"{measure} is defined on none of {over}: there is nothing to choose by."
        count = len(self.configurations)
        name = shorten_middle(choice.configuration, NAME_WIDTH)
        if count == 1:
            return f"{measure} of {name} is {choice.row['quality']:.3f} over {over}."
        answer = f"{name} is best of {count} by {measure} over {over}: {choice.row['quality']:.3f}"
        if choice.similar is None:
            return f"{answer}."
        if len(choice.similar) == count - 1:
            return f"{answer}, not significantly ahead of any."
        if not choice.similar:
            return f"{answer}, significantly ahead of all others."
        return f"{answer}, not significantly ahead of {len(choice.similar)}."

    def _choice(self) -> Choice | None:
        """Return the best configuration; None if the measure is defined on no query."""
        quality = self.configurations[self.manifest["best_by"]]
        if not (quality.is_not_null() & quality.is_not_nan()).any():
            return None
        return self.recommend().choices[-1]

    def _dynamic_notes(self) -> list[str]:
        """Say how many queries went deep, what tokens that saved, and what quality it cost."""
        notes = []
        rows = self.configurations.filter(pl.col("deep_share").is_not_null())
        for row in rows.iter_rows(named=True):
            saved, lost = row["tokens_saved"], row["quality_lost"]
            note = (
                f"{row['configuration']}: {row['deep_share']:.0%} of the queries went deep, "
                f"{row['mean_k']:.1f} candidates on average"
            )
            if saved is not None:
                note += f"; {saved:.0%} of the tokens of all deep saved"
                note += "" if lost is None else f" for {lost:.4f} of {self.manifest['best_by']}"
                note += ", on queries outside the pilot"
            notes.append(f"{note}.")
        return notes

    def tables(self) -> list[Table]:
        """The best configurations; with a load, what each engine takes at each rate."""
        if self._choice() is None:
            return self.full_tables()
        recommendation = self.recommend()
        choice = recommendation.choices[-1]
        best = configuration_table(
            recommendation.table,
            recommendation.verdicts(),
            first=recommendation.table["configuration"].to_list(),
            measure=recommendation.measure,
            latency=recommendation.latency,
            limits=choice.limits,
            shown=_SHOWN,
        )
        return [best, *([] if self.load is None else [_load_table(self.load)])]

    def full_tables(self) -> list[Table]:
        """Every configuration with its main values; with a load, what each engine takes."""
        return [self._quality_table(), *([] if self.load is None else [_load_table(self.load)])]

    def _quality_table(self) -> Table:
        """Return the configurations, best first, with quality, latency, cost and memory."""
        measure = self.manifest["best_by"]
        frame = self.configurations.sort(
            measure, descending=True, nulls_last=True, maintain_order=True
        )
        judged, percent = f"{measure} judged", f"{measure} %PROC"
        has_unjudged = judged in frame.columns and any_unjudged(frame[judged])
        ndcg = next((n for n in frame.columns if n.startswith("nDCG") and " " not in n), measure)
        sign = currency_sign(self.results.currency)
        fine: dict[str, Any] = {"exact_zero": True}
        columns = {
            "configuration": Column("configuration", "text", folds=True),
            measure: Column(measure),
            "interval": Column("95%", "text"),
            judged: Column("judged", drop=3) if has_unjudged else None,
            "worst cases": Column("worst cases", "text", drop=6) if has_unjudged else None,
            ndcg: Column(ndcg, drop=0 if ndcg == measure else 4),
            percent: Column("%PROC", drop=5, digits=1, **fine) if percent in frame else None,
            "latency_p50_ms": Column("p50 ms", drop=2, digits=1, **fine),
            "latency_p95_ms": Column("p95 ms", digits=1, **fine),
            "cost_per_1000": Column(f"{sign}/1000", digits=2, **fine),
            "unpriced": Column("unpriced", "text") if _unpriced_stages(frame) else None,
            "index MB": Column("index MB", drop=1, digits=1, **fine),
            "overlap@10": Column("overlap@10", drop=1, digits=2, **fine),
        }
        records = [
            {
                **row,
                "interval": interval_cell(row[f"{measure} low"], row[f"{measure} high"]),
                "worst cases": interval_cell(
                    row.get(f"{measure} lowest"), row.get(f"{measure} highest")
                ),
                "unpriced": row["unpriced"] or "–",
                "index MB": row["index_bytes"] / 1e6,
            }
            for row in frame.iter_rows(named=True)
        ]
        notes = [
            NOTE,
            f"worst cases: the ends of {measure} over every grade that a configuration's unjudged "
            "passages in the top k could have; all other unjudged passages stay not relevant",
        ]
        return Table.of_records(columns, records, notes if has_unjudged else [])

    def charts(self) -> list[Chart]:
        """The quality of each configuration with its interval, best first."""
        measure = str(self.manifest["best_by"])
        known = self.configurations.filter(pl.col(measure).is_not_null())
        return [quality_chart(known.sort(measure, descending=True), measure, measure)]


def sweep(
    settings: SweepSettings,
    out: str | Path,
    *,
    judge: Grader | None = None,
    notes: Sequence[str] = (),
) -> Swept:
    """Run every configuration; what an earlier run left in `out` is used again.

    `judge` grades 1–5 the unjudged passages in a configuration's top k, where the settings say so.
    `notes` are caveats about the questions, kept with all others.

    >>> from pathlib import Path
    >>> from rankproof.tradeoffs.plan import SweepSettings
    >>> from rankproof.tradeoffs.sweep import sweep
    >>> settings = SweepSettings(corpus=Path("try/corpus"), modes=["sparse"], pools=[30])
    >>> sweep(settings, "swept").configurations["configuration"].to_list()
    ['sparse K=30 top 10']
    """
    corpus = read_corpus(settings.corpus, settings.qrels)
    inputs = {**corpus.files, "qrels": corpus.qrels}
    qrels = read_qrels(corpus.qrels, aspects=any(m.needs_aspects for m in settings.all_measures))
    return sweep_texts(settings, corpus, qrels, inputs, out, judge=judge, notes=notes)


def sweep_texts(
    settings: SweepSettings,
    corpus: Corpus,
    judgements: Qrels,
    inputs: Mapping[str, Path | str],
    out: str | Path,
    *,
    judge: Grader | None = None,
    notes: Sequence[str] = (),
) -> Swept:
    """Sweep texts that were read already; `inputs` are files by role, or digests of frames."""
    started = time.perf_counter()
    folder = claim_folder(out, OWN_FILES, "sweep")
    work = _Work.prepare(settings, corpus, judgements, notes)
    stamp = work.stamp()
    if stamp is not None and (finished := _read_finished(folder, stamp, work.qrels)) is not None:
        return finished
    with Lock(folder / "sweep"), ExitStack() as workshops:
        work.time_stacks(folder, workshops)
        if work.settings.holes == "judge":
            work.judge_holes(judge)
        frame, per_query, lists = build_tables(work.stacks, work.latencies, work.costs)
        sections: dict[str, Any] = {}  # of the manifest
        if work.settings.answers is not None:
            frame, answers, sections["answers"] = work.answer(frame, per_query)
            write_atomically(folder / ANSWERS, answers.write_parquet)
        load_frame = None
        if (load := work.settings.load) is not None:
            load_frame = drive_stacks(work.stacks, load, folder / LOAD)
            if load_frame is not None:
                lines = describe_load(load_frame, load.sla_ms)
                sections["load"] = {"sla_ms": load.sla_ms, "words": lines}
        description = work.manifest(frame, inputs, time.perf_counter() - started) | sections
        description["notes"] += work.write_questions(folder)
        frame, run_notes = _write_runs(work.stacks, frame, folder)
        description["notes"] += run_notes
        results = Results(
            label="the sweep",
            frame=frame,
            per_query=per_query,
            manifest=redact(description),
            lists=lists,
            judgements=work.qrels.to_frame(),
            scale=work.qrels.scale,
        )
        _write_results(folder, results, work)
        if stamp is not None:
            _write_text(folder / "work" / FINISHED, stamp)
    return Swept(folder, results, load_frame)


@dataclass(slots=True)
class _Work:
    """A sweep in progress: its inputs, and the lists, times and judgments made so far."""

    settings: SweepSettings
    passages: Texts  # documents as they are, before chunking
    questions: Texts  # that have judgments
    qrels: Qrels
    costs: Costs
    references: dict[str, list[str]]  # reference answers by question
    caveats: list[str]  # about the questions, from the caller
    notes: list[str]  # for the manifest
    grid: list[Configuration]
    stacks: list[Stack] = field(default_factory=list)  # one per chunking
    latencies: dict[Configuration, Latency] = field(default_factory=dict)

    @classmethod
    def prepare(
        cls, settings: SweepSettings, corpus: Corpus, judgements: Qrels, notes: Sequence[str]
    ) -> _Work:
        """Regrade the judgments, keep the judged questions, and read prices and references."""
        settings = settings.on_scale(judgements.scale)
        qrels, skipped = _select_judgments(settings, corpus, judgements)
        judged = set(qrels.queries)
        pairs = zip(corpus.query_ids, corpus.queries, strict=True)
        references: dict[str, list[str]] = {}
        costs = Costs(settings, corpus)
        if settings.answers is not None and "queries" in corpus.files:
            references = read_answers(corpus.files["queries"])
        return cls(
            settings=settings,
            passages=Texts(corpus.document_ids, corpus.documents),
            questions=Texts(*zip(*(pair for pair in pairs if pair[0] in judged), strict=True)),
            qrels=qrels,
            costs=costs,
            references=references,
            caveats=list(notes),
            notes=[*notes, *skipped],
            grid=list(configurations(settings)),
        )

    def stamp(self) -> str | None:
        """Return a digest of all that decides the results; None if some of it is not known yet."""
        inputs = [
            self.references,
            value_identity(self.settings),
            self.passages.digest,
            self.questions.digest,
            digest(self.qrels.content()),
            repr(self.qrels.scale),
            environment_digest(PACKAGES),
            __version__,
            self.costs.notes,
            self.notes,
        ]
        # A judge's grades are not known before it is asked.
        is_known = is_reproducible(inputs) and self.settings.holes != "judge"
        return digest(inputs) if is_known else None

    def time_stacks(self, folder: Path, workshops: ExitStack) -> None:
        """Make every list and score, and time the stages, for each chunking in turn."""
        for name, chunking in self.settings.chunkings.items():
            passages, cut = self.passages, None
            if set(self.settings.chunkings) != {NONE}:
                cut = cut_with_judgments(chunking, self.passages, self.qrels)
                passages = cut.passages
            shop = workshops.enter_context(Workshop(passages, folder / "work"))
            grid = [c for c in self.grid if c.chunking == name]
            stack = Stack(shop, self.settings, self.questions, grid, self.qrels, cut)
            self.latencies |= Timing(stack).time(folder / "work" / "times.sqlite")
            self.stacks.append(stack)

    def judge_holes(self, judge: Grader | None) -> None:
        """Have the unjudged passages of every list graded.

        The coarsest chunking comes first: a chunk that holds a judged one is judged by it.
        """
        if judge is None:
            raise InputError(
                "holes: judge, and there is nobody to ask",
                remedy="run `rankproof sweep`, or pass a judge",
            )
        by_chunking = dict(zip(self.settings.chunkings, self.stacks, strict=True))
        coarsest_first = sorted(by_chunking, key=lambda n: len(by_chunking[n].shop.passages))
        for name in coarsest_first:
            stack = by_chunking[name]
            self._rejudge(name, stack)
            runs = (stack.judged_ranked(c).final for c in stack.grid)
            known = None if stack.cut is None else stack.cut.judged_chunks
            measures = self.settings.all_measures
            self.qrels, note = fill_holes(runs, self.qrels, measures, judge, known)
            self.notes.append(note if len(self.stacks) == 1 else f"{name}: {note}")
        for name, stack in by_chunking.items():
            self._rejudge(name, stack)

    def _rejudge(self, chunking: str, stack: Stack) -> None:
        """Hand a stack the judgments as they are now."""
        cut = stack.cut
        if cut is not None:
            cut = cut_with_judgments(self.settings.chunkings[chunking], self.passages, self.qrels)
        stack.judge_by(self.qrels, cut)

    def answer(
        self, frame: pl.DataFrame, per_query: pl.DataFrame
    ) -> tuple[pl.DataFrame, pl.DataFrame, dict[str, Any]]:
        """Answer from every prompt: rows with their accuracy, all answers, and the manifest's part.

        Each stack answers by itself, since an id may have another text under another chunking.
        """
        settings = self.settings
        assert settings.answers is not None
        price = self.costs.price_of(settings.answers.generator.model)
        answers, summaries = [], []
        for stack in self.stacks:
            prompts = {c.name: c.prompt_k for c in stack.grid}
            documents = {
                c.name: prompt_documents(stack.ranked(c).final, c.prompt_k) for c in stack.grid
            }
            answers.append(
                answer_prompts(
                    settings.answers,
                    documents,
                    questions=self.questions.by_id,
                    references=self.references,
                    passage_text=stack.shop.text,
                    cache=stack.shop.cache,
                )
            )
            summaries.append(
                summarize_answers(
                    answers[-1],
                    runs={c.name: stack.judged_ranked(c).final for c in stack.grid},
                    prompts=prompts,
                    qrels=stack.judgments if settings.at else None,
                    price=price,
                    seed=settings.seed,
                )
            )
        all_answers, summary = pl.concat(answers), pl.concat(summaries)
        section = self._answer_section(settings.answers, all_answers, summary, per_query)
        joined = frame.join(summary, on="configuration", how="left", maintain_order="left")
        return joined, all_answers, section

    def _answer_section(
        self,
        chosen: AnswersSettings,
        answers: pl.DataFrame,
        summary: pl.DataFrame,
        per_query: pl.DataFrame,
    ) -> dict[str, Any]:
        """What the manifest says about answers, with their correlation to the measures."""
        settings = self.settings
        measured = set(per_query["measure"].unique())
        ending = AT_PROMPT if len(settings.prompts) > 1 else f"@{settings.prompts[0]}"
        names = [f"{name}{ending}" for name in SETS] if settings.at else []
        names = [name for name in [*names, settings.chosen_by] if name in measured]
        related = correlations(answers, per_query, list(dict.fromkeys(names)), settings.seed)
        return {
            "generator": chosen.generator.model,
            "score": chosen.score,
            "questions": answers["query"].n_unique(),
            "prompts": answers["prompt"].n_unique(),
            "correlations": {one.measure: one.to_dict() for one in related},
            "words": describe_answers(chosen, answers, summary, related),
        }

    def manifest(
        self, frame: pl.DataFrame, inputs: Mapping[str, Path | str], seconds: float
    ) -> dict[str, Any]:
        """How the sweep was made, and what to know of its results."""
        settings = self.settings
        made = manifest(
            "sweep",
            config=settings.model_dump(mode="json"),
            inputs={role: file for role, file in inputs.items() if isinstance(file, Path)},
            seed=settings.seed,
            packages=PACKAGES,
        )
        for role, known in inputs.items():
            if isinstance(known, str):
                made["inputs"][role] = {"sha256": known}
        made |= {
            "configurations": len(self.grid),
            "queries": len(self.questions),
            "passages": len(self.passages),
        }
        if set(settings.chunkings) != {NONE}:
            counts = [len(stack.shop.passages) for stack in self.stacks]
            made["chunks"] = dict(zip(settings.chunkings, counts, strict=True))
        return made | {
            "caveats": self.caveats,
            "notes": [
                *self.notes,
                *self.costs.notes,
                *self._stack_notes(),
                *_ideal_note(frame),
                *_scale_note(frame, settings.chosen_by, self.qrels),
                *_unpriced_note(frame),
            ],
            "best_by": settings.chosen_by,
            "prices": self.costs.summary,
            "seconds": round(seconds, 3),
            "seconds_in_parts": round(sum(stack.shop.seconds_spent for stack in self.stacks), 3),
        }

    def _stack_notes(self) -> list[str]:
        notes: dict[str, None] = {}
        for stack in self.stacks:
            notes |= dict.fromkeys([*stack.shop.notes(), *stack.notes(self.costs.by_search)])
        return list(notes)

    def write_questions(self, folder: Path) -> list[str]:
        """Write the questions as typed and as searched; return a note on those not rewritten."""
        questions = self.stacks[0].rewritten_questions()
        if not questions.height:
            return []
        write_atomically(folder / QUESTIONS, questions.write_parquet)
        unchanged = questions.drop_nulls("kept")
        if not unchanged.height:
            return []
        reasons = ", ".join(
            f"{reason} {count}"
            for reason, count in unchanged["kept"].value_counts(sort=True).rows()
        )
        return [
            f"{unchanged.height} of {plural(questions.height, 'question')} stayed as typed: the "
            f"rewriter's reply could not be used ({reasons})"
        ]

    def displayed_texts(self, listed: pl.Series) -> pl.DataFrame:
        """kind, id, text for display: every question, and how listed passages begin."""
        wanted = set(listed.unique())
        questions = zip(self.questions.ids, self.questions.texts, strict=True)
        rows = [("question", name, text) for name, text in questions]
        for stack in self.stacks:
            passages = stack.shop.passages
            rows += [
                ("passage", name, text[:_PASSAGE_BEGINNING])
                for name, text in zip(passages.ids, passages.texts, strict=True)
                if name in wanted
            ]
        schema = dict.fromkeys(("kind", "id", "text"), pl.String)
        frame = pl.DataFrame(rows, schema=schema, orient="row")
        return frame.unique(["kind", "id"], maintain_order=True)


def _load_table(load: pl.DataFrame) -> Table:
    """Return the latency of each engine at each rate."""
    names = {"p50_ms": "p50 ms", "p95_ms": "p95 ms", "p99_ms": "p99 ms"}
    columns = {
        "engine": Column("engine", "text", folds=True),
        "rate": Column("queries/s"),
        "arrivals": Column("arrivals"),
        **{key: Column(name, digits=1, exact_zero=True) for key, name in names.items()},
        "errors": Column("errors"),
        "lost": Column("unanswered"),
    }
    records = ({**row, "rate": f"{row['qps']:g}"} for row in load.iter_rows(named=True))
    return replace(Table.of_records(columns, records), title="Under load")


# -------------------------------------------------------------------------------- the folder


def _write_text(file: Path, text: str) -> None:
    write_atomically(file, lambda path: path.write_text(text, encoding="utf-8"))


def _write_results(folder: Path, results: Results, work: _Work) -> None:
    """Write the folder; the manifest comes last and says that everything is there."""
    assert results.manifest is not None
    assert results.lists is not None
    text = json.dumps(results.manifest, indent=2, ensure_ascii=False)
    _keep_earlier(folder, results.frame, results.manifest)
    for name, frame in {
        TEXTS: work.displayed_texts(results.lists["doc"]),
        PER_QUERY: results.per_query,
        LISTS: results.lists,
        JUDGEMENTS: results.judgements,
    }.items():
        assert frame is not None
        write_atomically(folder / name, frame.write_parquet)
    if results.scale is not None:
        _write_text(folder / f"{JUDGEMENTS}.scale", scale_text(results.scale))
    write_atomically(folder / CONFIGURATIONS, results.frame.write_parquet)
    _write_text(folder / MANIFEST, text)


def _keep_earlier(folder: Path, frame: pl.DataFrame, made: dict[str, Any]) -> None:
    """Set the results of an earlier sweep aside if these differ from them."""
    try:
        earlier = read_sweep(folder)
    except InputError:
        return
    columns = ["configuration", made["best_by"]]
    is_same = all(earlier.manifest.get(k) == made[k] for k in ("config", "inputs", "versions"))
    rows = earlier.configurations
    is_same = is_same and set(columns) <= set(rows.columns)
    if is_same and rows.select(columns).equals(frame.select(columns)):
        return
    write_atomically(folder / EARLIER / CONFIGURATIONS, earlier.configurations.write_parquet)
    text = json.dumps(earlier.manifest, indent=2, ensure_ascii=False)
    _write_text(folder / EARLIER / MANIFEST, text)


def _write_runs(
    stacks: list[Stack], frame: pl.DataFrame, folder: Path
) -> tuple[pl.DataFrame, list[str]]:
    """Write each list as a TREC file; return the rows with its name as `run`, and notes."""
    by_configuration = {c: stack for stack in stacks for c in stack.grid}
    names = [re.sub(r"[^\w.+=-]+", "_", c.name) for c in by_configuration]
    repeats = Counter(name.lower() for name in names)  # some file systems ignore case
    files = [
        f"{name}.trec" if repeats[name.lower()] == 1 else f"{name}-{at}.trec"
        for at, name in enumerate(names, 1)
    ]
    try:
        for (c, stack), file in zip(by_configuration.items(), files, strict=True):
            write_trec(replace(stack.judged_ranked(c).final, name=c.name), folder / RUNS / file)
    except WriteError:
        raise
    except InputError as error:  # ids that no TREC file can hold
        return frame, [f"no {RUNS}/ was written: {error.problem}"]
    return frame.with_columns(run=pl.Series([f"{RUNS}/{file}" for file in files])), []


def _read_finished(folder: Path, stamp: str, qrels: Qrels) -> Swept | None:
    """Return what an earlier run of the same sweep wrote; None unless every file is there."""
    try:
        if (folder / "work" / FINISHED).read_text(encoding="utf-8") != stamp:
            return None
        swept = read_sweep(folder)
    except (OSError, InputError):
        return None
    names = [TEXTS, LISTS, JUDGEMENTS]
    names += [] if qrels.scale is None else [f"{JUDGEMENTS}.scale"]
    rows = swept.configurations
    names += rows["run"].drop_nulls().to_list() if "run" in rows.columns else []
    return swept if all((folder / name).is_file() for name in names) else None


def read_sweep(folder: str | Path) -> Swept:
    """Read a finished sweep from its folder."""
    place = Path(folder)
    for name in (MANIFEST, CONFIGURATIONS, PER_QUERY):
        check_present(place / name)
    results = read_results(place)
    try:
        load = pl.read_parquet(place / LOAD) if "load" in (results.manifest or {}) else None
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(
            f"cannot read the results ({first_line(error)})",
            place=str(folder),
            remedy="run the sweep again",
        ) from None
    return Swept(place, results, load)


def find_run_file(folder: str | Path, name: str) -> Path:
    """Return the run of a configuration of a sweep, by the configuration's name."""
    row = find_row(read_sweep(folder).configurations, name, str(folder))
    if row.get("run") is None:
        raise InputError("it holds no runs", place=str(folder), remedy="run the sweep again")
    return Path(folder) / str(row["run"])


# --------------------------------------------------------------------------------- the notes


def _unpriced_stages(frame: pl.DataFrame) -> list[str]:
    """Return the stages without a price in any configuration."""
    return frame["unpriced"].drop_nulls().str.split(", ").explode().unique().sort().to_list()


def _unpriced_note(frame: pl.DataFrame) -> list[str]:
    """Name the stages without a price, which are missing from every cost."""
    stages = _unpriced_stages(frame)
    if not stages:
        return []
    return [
        f"without a price, and in no cost: {', '.join(stages)}; no budget can be kept so: add them "
        "to the price file"
    ]


def _ideal_note(frame: pl.DataFrame) -> list[str]:
    """Warn where PROC is the ideal, because the judgments are of these candidates."""
    count = int(frame["holds_all_judged"].sum())
    return [f"{count} of {plural(len(frame), 'configuration')}: {_PROC_IS_IDEAL}"] if count else []


def _scale_note(frame: pl.DataFrame, measure: str, qrels: Qrels) -> list[str]:
    """Say which grades unjudged passages are assumed to have, where no scale is declared."""
    column = f"{measure} judged"
    if qrels.scale is not None or column not in frame.columns or not any_unjudged(frame[column]):
        return []
    file = f"{Path(qrels.name).name}.scale"
    return [f"unjudged passages may have grades {grades_of(qrels)}; a file {file} says another"]


# ------------------------------------------------------------------------------- the judgments


def _select_judgments(
    settings: SweepSettings, corpus: Corpus, qrels: Qrels
) -> tuple[Qrels, list[str]]:
    """Return the judgments of existing questions, regraded by the settings, and notes."""
    frame = _regraded(settings, qrels)
    notes = []
    has_question = frame["query"].is_in(corpus.query_ids)
    unknown = frame.filter(~has_question)["query"].n_unique()
    if unknown:
        others = plural(unknown, "judged query is", "judged queries are")
        notes.append(f"{others} not among the questions: skipped")
    frame = frame.filter(has_question)
    unjudged = len(set(corpus.query_ids) - set(frame["query"]))
    if unjudged:
        have = out_of(unjudged, len(corpus.query_ids), "question", "has", "have")
        notes.append(f"{have} no graded passage: skipped")
    if not frame.height:
        raise InputError(
            f"no question of {corpus.label} is judged in it",
            place=str(corpus.qrels),
            remedy="check that the two belong together",
        )
    if settings.at:
        _check_set_grades(frame, corpus, qrels)
    has_document = frame["doc"].is_in(corpus.document_ids)
    if set(settings.chunkings) != {NONE}:  # then a span of a document can be judged
        has_document |= frame["doc"].str.replace(SPAN, "").is_in(corpus.document_ids)
    missing = frame.filter(~has_document)["doc"].n_unique()
    if corpus.document_ids and missing:
        absent = plural(missing, "judged passage is", "judged passages are")
        them = "it" if missing == 1 else "them"
        notes.append(f"{absent} not in the corpus: no configuration finds {them}")
    if corpus.empty:
        notes.append(f"{plural(corpus.empty, 'passage is', 'passages are')} empty")
    scale = qrels.scale if settings.grades is None else None
    scale = SET_SCALE if settings.at else scale
    if qrels.aspects is None:
        return replace(read_qrels(frame, name=qrels.name), scale=scale), notes
    _check_aspects_stay(settings, qrels)
    selected = qrels.queries.is_in(frame["query"].unique().implode()).to_numpy()
    return replace(select_queries(qrels, selected), scale=scale), notes


def _check_aspects_stay(settings: SweepSettings, qrels: Qrels) -> None:
    """Raise InputError for settings that make judgments of their own, without aspects."""
    makes_own = {
        "grades": settings.grades is not None,
        "chunkings": set(settings.chunkings) != {NONE},
        "holes: judge": settings.holes == "judge",
    }
    setting = next((name for name, is_set in makes_own.items() if is_set), None)
    if setting is not None:
        raise InputError(
            f"{setting}, and judgments of aspects",
            place=qrels.name,
            remedy="leave it out, or use measures without aspects",
        )


def _regraded(settings: SweepSettings, qrels: Qrels) -> pl.DataFrame:
    """Return the judgments with the grades that the settings give them."""
    frame = qrels.to_frame()
    if settings.grades is None:
        return frame
    is_known = frame["grade"].is_in(list(settings.grades))
    if not is_known.all():
        at = int((~is_known).arg_max() or 0)
        raise InputError(
            f"grade {frame['grade'][at]} is not among the grades to be changed",
            place=qrels.place(at),
            remedy=f"add `{frame['grade'][at]}: …` to `grades`",
        )
    return frame.with_columns(pl.col("grade").replace_strict(settings.grades))


def _check_set_grades(frame: pl.DataFrame, corpus: Corpus, qrels: Qrels) -> None:
    """Raise InputError unless grades are 1–5 and some are relevant, as the set measures need."""
    outside = frame.filter(~pl.col("grade").is_between(1, 5))
    if outside.height:
        raise InputError(
            f"grade {outside['grade'][0]} is outside 1–5",
            place=f"{corpus.qrels}: query {shorten(outside['query'][0])}",
            remedy=_suggest_grades(qrels),
        )
    highest = int(frame["grade"].to_numpy().max())
    if highest < 4:
        raise InputError(
            f"no grade is above {highest}, and 4 or 5 means relevant",
            place=str(corpus.qrels),
            remedy=_suggest_grades(qrels),
        )


def _suggest_grades(qrels: Qrels) -> str:
    """Suggest a line of YAML that maps all grades evenly to 1–5."""
    grades = sorted(set(qrels.to_frame()["grade"]))
    highest = grades[-1]
    example = "0: 1, 1: 5"
    if highest > 0 and len(grades) <= 10:
        example = ", ".join(
            f"{grade}: {round(1 + 4 * max(grade, 0) / highest)}" for grade in grades
        )
    return f"say what your grades mean: `grades: {{{example}}}`, say"
