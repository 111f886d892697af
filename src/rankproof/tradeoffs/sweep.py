"""Every configuration of a grid on one corpus: quality, ceilings, latency, cost.

    corpus ─ vectors ─ indexes ─ lists ─ pools ─ scores ─▶ runs ─▶ configurations.parquet
                                    └───── times ─────┘            per_query.parquet, sweep.json

What configurations share is made once (`retrieval/workshop.py`).
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from rankproof.data import read_qrels
from rankproof.data.beir import Corpus, read_answers, read_corpus
from rankproof.data.scales import scale_text
from rankproof.data.tables import SET_SCALE, Qrels
from rankproof.data.trec import write_trec
from rankproof.foundation.errors import InputError, first_line, import_extra, shorten
from rankproof.foundation.files import WriteError, claim_folder, write_atomically
from rankproof.foundation.locks import Lock
from rankproof.foundation.manifest import digest, manifest
from rankproof.foundation.phrasing import out_of, plural
from rankproof.foundation.redaction import redact
from rankproof.foundation.version import __version__
from rankproof.presentation.judged_column import some_unjudged
from rankproof.presentation.notebook import Displayed, ranges
from rankproof.presentation.tables import Table
from rankproof.retrieval.chunks import SPAN
from rankproof.retrieval.identity import environment_digest, is_reproducible, value_identity
from rankproof.retrieval.workshop import Texts, Told, Workshop, silent
from rankproof.tradeoffs.answers import (
    ANSWERS,
    AnswersSettings,
    answer,
    by_configuration,
    contexts,
    correlations,
    in_words,
)
from rankproof.tradeoffs.ceilings import PROC_IS_IDEAL
from rankproof.tradeoffs.chunked import cut_and_judged
from rankproof.tradeoffs.latency import Latency
from rankproof.tradeoffs.load import words
from rankproof.tradeoffs.outcomes import Costs, tables
from rankproof.tradeoffs.plan import NONE, SETS, Configuration, SweepSettings, configurations
from rankproof.tradeoffs.prices import Price
from rankproof.tradeoffs.recommend import Recommendation, recommend
from rankproof.tradeoffs.results import (
    AT_PROMPT,
    EARLIER,
    JUDGEMENTS,
    LISTS,
    TEXTS,
    Results,
    find_row,
    listed,
)
from rankproof.tradeoffs.stack import Stack
from rankproof.tradeoffs.timing import PACKAGES, Timing, load
from rankproof.unjudged.bounds import grades_of
from rankproof.unjudged.judging_order import Grader, fill_holes

RESULTS = "configurations.parquet"
PER_QUERY = "per_query.parquet"
LOAD = "load.parquet"
MANIFEST = "sweep.json"
QUESTIONS = "questions.parquet"  # as typed and as searched, where a rewriter is named
RUNS = "runs"  # of each row, as TREC has it
FINISHED = "finished"  # in work: the digest of all that decided what lies in the folder
OURS = (
    *(RESULTS, PER_QUERY, LISTS, JUDGEMENTS, f"{JUDGEMENTS}.scale", LOAD, MANIFEST, QUESTIONS),
    *(RUNS, TEXTS, EARLIER, ANSWERS, "report.html"),
    *("work", "sweep.lock", "sweep.owner"),
)

_BEGINNING = 400  # characters of a passage


@dataclass(frozen=True, slots=True, repr=False)
class Swept(Displayed):
    """What a sweep found, as it lies in its folder."""

    folder: Path
    configurations: pl.DataFrame
    per_query: pl.DataFrame
    manifest: dict[str, Any]
    load: pl.DataFrame | None = None  # engine and rate: p50, p95, p99, errors

    def recommend(self, **limits: Any) -> Recommendation:
        """Which configuration to deploy: `rankproof.tradeoffs.recommend` of this sweep."""
        return recommend(self._results, **limits)

    @property
    def _results(self) -> Results:
        per_query = self.per_query.select("configuration", "query", "measure", "value")
        kept = self.configurations, per_query, self.manifest, *listed(self.folder)
        return Results("the sweep", *kept)

    def unsettled(self) -> dict[str, bool]:
        """Those that grades of unjudged passages could put level with the best one or ahead, and
        whether some do."""
        best = self.configurations.filter("best")["configuration"][0]
        names = self.configurations["configuration"].to_list()
        return self._results.unsettled(best, self.manifest["best_by"], names)

    def __str__(self) -> str:
        """A line each: the quality with its range over ties, queries with ties, times."""
        by, queries = self.manifest["best_by"], self.manifest["queries"]
        lines = [
            f"{row['configuration']}: {by} {row[by]:.4f} "
            f"({row[f'{by} min']:.4f} to {row[f'{by} max']:.4f} by the order of ties), "
            f"{row['tied']} of {plural(queries, 'query')} tied, "
            f"p50 {row['latency_p50_ms']:.1f} ms, p95 {row['latency_p95_ms']:.1f} ms"
            for row in self.configurations.iter_rows(named=True)
        ]
        return "\n".join([*lines, *self.manifest["notes"]])

    def __repr__(self) -> str:
        return f"<sweep of {plural(len(self.configurations), 'configuration')} in {self.folder}>"

    def _shown(self) -> Table:
        from rankproof.presentation import views

        by = str(self.manifest["best_by"])
        chosen = ["configuration", by, f"{by} low", f"{by} high", f"{by} judged", f"{by} PROC"]
        chosen += ["latency_p95_ms"]
        chosen += ["cost_per_1000", "best"]
        some = self.configurations.select(c for c in chosen if c in self.configurations.columns)
        return views.frame(some.sort(by, descending=True, nulls_last=True))

    def to_polars(self) -> pl.DataFrame:
        """Every column of every configuration."""
        return self.configurations

    def to_pandas(self) -> Any:
        """Every column of every configuration, for pandas."""
        return import_extra("pandas", "a pandas frame", "report").DataFrame(
            self.configurations.to_dict(as_series=False)
        )

    def plot(self) -> Any:
        """The quality of each configuration with its interval, best first."""
        by = str(self.manifest["best_by"])
        best = self.configurations.filter(pl.col(by).is_not_null()).sort(by, descending=True)
        rows = best.select("configuration", by, f"{by} low", f"{by} high").rows()
        return ranges(rows, "configuration", by)


def sweep(
    settings: SweepSettings,
    out: str | Path,
    *,
    progress: Told = silent,
    judge: Grader | None = None,
    notes: Sequence[str] = (),
) -> Swept:
    """Run every configuration; what is in `out` from an earlier run of it is used again.

    `progress(label, total)` is a context that yields a function to be told of work done. `judge`
    grades 1–5 what nobody judged in a configuration's top k, where the settings say so. `notes` are
    what the caller knows of the questions, to stand with all others.

    >>> from pathlib import Path
    >>> from rankproof.tradeoffs.plan import SweepSettings
    >>> from rankproof.tradeoffs.sweep import sweep
    >>> settings = SweepSettings(corpus=Path("try/corpus"), modes=["sparse"], pools=[30])
    >>> sweep(settings, "swept").configurations["configuration"].to_list()
    ['sparse K=30 top 10']
    """
    corpus = read_corpus(settings.corpus, settings.qrels)
    inputs = {**corpus.files, "qrels": corpus.qrels}
    read = read_qrels(corpus.qrels)
    return sweep_texts(
        settings, corpus, read, inputs, out, progress=progress, judge=judge, notes=notes
    )


def sweep_texts(
    settings: SweepSettings,
    corpus: Corpus,
    judgements: Qrels,
    inputs: Mapping[str, Path | str],
    out: str | Path,
    *,
    progress: Told = silent,
    judge: Grader | None = None,
    notes: Sequence[str] = (),
) -> Swept:
    """The same of texts that were read. `inputs` are files by role, or digests of what has none."""
    begun = time.perf_counter()
    folder = claim_folder(out, OURS, "sweep")
    settings = settings.on_scale(judgements.scale)
    qrels, left_out = _graded(settings, corpus, judgements)
    caveats, notes = list(notes), [*notes, *left_out]
    judged = set(qrels.queries)
    pairs = zip(corpus.query_ids, corpus.queries, strict=True)
    asked = Texts(*zip(*(pair for pair in pairs if pair[0] in judged), strict=True))
    passages = Texts(corpus.document_ids, corpus.documents)
    grid = list(configurations(settings))
    costs = Costs(settings, corpus)
    references: dict[str, list[str]] = {}
    if settings.answers is not None and "queries" in corpus.files:
        references = read_answers(corpus.files["queries"])
    decided = [
        references,
        value_identity(settings),
        passages.digest,
        asked.digest,
        digest(qrels.to_frame().rows()),
        repr(qrels.scale),
    ]
    decided += [environment_digest(PACKAGES), __version__, costs.notes, notes]
    asks = settings.holes == "judge"  # what it would say now is not known
    stamp = digest(decided) if is_reproducible(decided) and not asks else None
    if stamp is not None and (kept := _finished(folder, stamp, qrels)) is not None:
        return kept
    with Lock(folder / "sweep"), ExitStack() as opened:
        stacks = []
        latency: dict[Configuration, Latency] = {}
        for name, chosen in settings.chunkings.items():
            parts, judged_as = passages, None
            if set(settings.chunkings) != {NONE}:
                judged_as = cut_and_judged(chosen, passages, qrels)
                parts = judged_as.passages
            shop = opened.enter_context(Workshop(parts, folder / "work"))
            some = [c for c in grid if c.chunking == name]
            stack = Stack(shop, settings, asked, some, progress, qrels, judged_as)
            latency |= Timing(stack).time(folder / "work" / "times.sqlite")
            stacks.append(stack)
        if settings.holes == "judge":
            if judge is None:
                raise InputError(
                    "holes: judge, and there is nobody to ask",
                    remedy="run `rankproof sweep`, or pass a judge",
                )
            qrels, filled = _filled(stacks, passages, qrels, judge)
            notes += filled
        frame, per_query, lists = tables(stacks, latency, costs, progress)
        said: dict[str, Any] = {}
        if settings.answers is not None:
            asking = (stacks, settings.answers, references, costs.price_of)
            frame, told, said = _answered(*asking, frame, per_query)
            write_atomically(folder / ANSWERS, told.write_parquet)
        driven = None if settings.load is None else load(stacks, settings.load, folder / LOAD)
        seconds = time.perf_counter() - begun
        made: dict[str, Any] = {
            **manifest(
                "sweep",
                config=settings.model_dump(mode="json"),
                inputs={k: file for k, file in inputs.items() if isinstance(file, Path)},
                seed=settings.seed,
                packages=PACKAGES,
            ),
            "configurations": len(grid),
            "queries": len(asked),
            "passages": len(passages),
            **_how_many(settings, stacks),
            "caveats": caveats,
            "notes": [
                *(*notes, *costs.notes, *_notes(stacks, costs)),
                *_at_home(frame),
                *_assumed(frame, settings.chosen_by, qrels),
                *_unpriced(frame),
            ],
            "best_by": settings.chosen_by,
            "prices": costs.said,
            "seconds": round(seconds, 3),
            "seconds_in_parts": round(sum(stack.shop.spent for stack in stacks), 3),
        }
        if said:
            made["answers"] = said
        if driven is not None and settings.load is not None:
            made["load"] = {
                "sla_ms": settings.load.sla_ms,
                "words": words(driven, settings.load.sla_ms),
            }
        for role, known in inputs.items():
            if isinstance(known, str):
                made["inputs"][role] = {"sha256": known}
        asked_as = stacks[0].asked_and_searched()
        if asked_as.height:
            stayed = asked_as.drop_nulls("kept")
            why = ", ".join(
                f"{reason} {count}"
                for reason, count in stayed["kept"].value_counts(sort=True).rows()
            )
            made["notes"] += [
                f"{stayed.height} of {plural(asked_as.height, 'question')} stayed as typed: the "
                "rewriter's "
                f"reply could not be used ({why})"
            ] * bool(stayed.height)
            write_atomically(folder / QUESTIONS, asked_as.write_parquet)
        frame, unwritten = _write_runs(stacks, frame, folder)
        made["notes"] += unwritten
        made = redact(made)
        text = json.dumps(made, indent=2, ensure_ascii=False)
        _keep(folder, frame, made)
        shown = [_shown(asked, stack.shop.passages, lists["doc"]) for stack in stacks]
        held = pl.concat(shown).unique(["kind", "id"], maintain_order=True)
        write_atomically(folder / TEXTS, held.write_parquet)
        write_atomically(folder / PER_QUERY, per_query.write_parquet)
        write_atomically(folder / LISTS, lists.write_parquet)
        write_atomically(folder / JUDGEMENTS, qrels.to_frame().write_parquet)
        if qrels.scale is not None:
            _write(folder / f"{JUDGEMENTS}.scale", scale_text(qrels.scale))
        write_atomically(folder / RESULTS, frame.write_parquet)
        _write(folder / MANIFEST, text)
        if stamp is not None:
            _write(folder / "work" / FINISHED, stamp)
    return Swept(folder, frame, per_query, made, driven)


def _filled(
    stacks: list[Stack], documents: Texts, qrels: Qrels, judge: Grader
) -> tuple[Qrels, list[str]]:
    """The judgements with the holes of every list. The coarsest chunking comes first: what lies in
    a passage that was judged holds it, and is not asked for again."""
    settings = stacks[0].settings
    cuts = list(settings.chunkings.values())
    said = []

    def judged_by(stack: Stack) -> None:
        cut = stack.cut and cut_and_judged(cuts[stacks.index(stack)], documents, qrels)
        stack.judge_by(qrels, cut)

    for stack in sorted(stacks, key=lambda stack: len(stack.shop.passages)):
        judged_by(stack)
        runs = (stack.judged_ranked(c).final for c in stack.grid)
        known = None if stack.cut is None else stack.cut.known
        qrels, filled = fill_holes(runs, qrels, settings.all_measures, judge, known)
        name = list(settings.chunkings)[stacks.index(stack)]
        said.append(filled if len(stacks) == 1 else f"{name}: {filled}")
    for stack in stacks:
        judged_by(stack)
    return qrels, said


def _write(file: Path, text: str) -> None:
    write_atomically(file, lambda path: path.write_text(text, encoding="utf-8"))


def _finished(folder: Path, stamp: str, qrels: Qrels) -> Swept | None:
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


def _how_many(settings: SweepSettings, stacks: list[Stack]) -> dict[str, Any]:
    """How many passages each chunking makes of the documents."""
    if set(settings.chunkings) == {NONE}:
        return {}
    counts = [len(stack.shop.passages) for stack in stacks]
    return {"chunks": dict(zip(settings.chunkings, counts, strict=True))}


def _notes(stacks: list[Stack], costs: Costs) -> list[str]:
    found = [
        note for stack in stacks for note in (*stack.shop.notes(), *stack.notes(costs.by_search))
    ]
    return list(dict.fromkeys(found))


def _write_runs(
    stacks: list[Stack], frame: pl.DataFrame, folder: Path
) -> tuple[pl.DataFrame, list[str]]:
    """The list of each row as a TREC file, its name in the column `run`; and remarks."""
    of = {c: stack for stack in stacks for c in stack.grid}
    names = [re.sub(r"[^\w.+=-]+", "_", c.name) for c in of]
    twice = Counter(name.lower() for name in names)  # some disks do not tell case
    files = [
        f"{name}.trec" if twice[name.lower()] == 1 else f"{name}-{at}.trec"
        for at, name in enumerate(names, 1)
    ]
    try:
        for (c, stack), file in zip(of.items(), files, strict=True):
            write_trec(replace(stack.judged_ranked(c).final, name=c.name), folder / RUNS / file)
    except WriteError:
        raise
    except InputError as error:  # ids that no TREC file can hold
        return frame, [f"no {RUNS}/ was written: {error.problem}"]
    return frame.with_columns(run=pl.Series([f"{RUNS}/{file}" for file in files])), []


def row_file(folder: str | Path, name: str) -> Path:
    """The run of a row of a sweep, by its name."""
    row = find_row(read_sweep(folder).configurations, name, str(folder))
    if row.get("run") is None:
        raise InputError("it holds no runs", place=str(folder), remedy="run the sweep again")
    return Path(folder) / str(row["run"])


def _unpriced(frame: pl.DataFrame) -> list[str]:
    """A warning where stages have no price."""
    named = frame["unpriced"].drop_nulls().str.split(", ").explode().unique().sort().to_list()
    return [
        f"without a price, and in no cost: {', '.join(named)}; no budget can be kept so: add them "
        "to the price file"
    ] * bool(named)


def _answered(
    stacks: list[Stack],
    chosen: AnswersSettings,
    references: Mapping[str, list[str]],
    price_of: Callable[[str], Price | None],
    frame: pl.DataFrame,
    per_query: pl.DataFrame,
) -> tuple[pl.DataFrame, pl.DataFrame, dict[str, Any]]:
    """The rows with what their prompts were worth; every answer; and what is said of them."""
    settings = stacks[0].settings
    price = price_of(chosen.generator.model)
    each, rows = [], []
    for stack in stacks:  # the same id may have other text where it was cut otherwise
        runs = {c.name: stack.ranked(c).final for c in stack.grid}
        prompts = {c.name: c.prompt_k for c in stack.grid}
        given = {name: contexts(run, prompts[name]) for name, run in runs.items()}
        texts = (stack.asked.by_id, references, stack.shop.text)
        each.append(answer(chosen, given, *texts, stack.shop.cache, stack.progress))
        graded = stack.judged if settings.at else None
        runs = {c.name: stack.judged_ranked(c).final for c in stack.grid}
        rows.append(by_configuration(each[-1], runs, prompts, graded, price, settings.seed))
    told, summed = pl.concat(each), pl.concat(rows)
    measured = set(per_query["measure"].unique())
    ending = AT_PROMPT if len(settings.prompts) > 1 else f"@{settings.prompts[0]}"
    named = [f"{name}{ending}" for name in SETS] if settings.at else []
    named = [name for name in [*named, settings.chosen_by] if name in measured]
    found = correlations(told, per_query, list(dict.fromkeys(named)), settings.seed)
    said = {
        "generator": chosen.generator.model,
        "score": chosen.score,
        "questions": told["query"].n_unique(),
        "prompts": told["prompt"].n_unique(),
        "correlations": {one.measure: one.to_dict() for one in found},
        "words": in_words(chosen, told, summed, found),
    }
    return frame.join(summed, on="configuration", how="left", maintain_order="left"), told, said


def _keep(folder: Path, frame: pl.DataFrame, made: dict[str, Any]) -> None:
    """Set the results of an earlier sweep aside, where these are others."""
    try:
        old = read_sweep(folder)
    except InputError:
        return
    by = ["configuration", made["best_by"]]
    same = all(old.manifest.get(key) == made[key] for key in ("config", "inputs", "versions"))
    known = set(by) <= set(old.configurations.columns)
    if same and known and old.configurations.select(by).equals(frame.select(by)):
        return
    write_atomically(folder / EARLIER / RESULTS, old.configurations.write_parquet)
    _write(folder / EARLIER / MANIFEST, json.dumps(old.manifest, indent=2, ensure_ascii=False))


def _shown(asked: Texts, passages: Texts, listed: pl.Series) -> pl.DataFrame:
    """kind, id, text of what a page shows: every question, and how listed passages begin."""
    found = set(listed.unique())
    begins = [
        (name, text[:_BEGINNING])
        for name, text in zip(passages.ids, passages.texts, strict=True)
        if name in found
    ]
    rows = [("question", *pair) for pair in zip(asked.ids, asked.texts, strict=True)]
    rows += [("passage", *pair) for pair in begins]
    return pl.DataFrame(rows, schema=dict.fromkeys(("kind", "id", "text"), pl.String), orient="row")


def _at_home(frame: pl.DataFrame) -> list[str]:
    """A warning where PROC is the ideal because the judgements are of these candidates."""
    count = int(frame["holds_all_judged"].sum())
    return [f"{count} of {plural(len(frame), 'configuration')}: {PROC_IS_IDEAL}"] if count else []


def _assumed(frame: pl.DataFrame, by: str, qrels: Qrels) -> list[str]:
    """A remark where nobody said which grades unjudged passages can have."""
    name = f"{by} judged"
    if qrels.scale is not None or name not in frame.columns or not some_unjudged(frame[name]):
        return []
    file = f"{Path(qrels.name).name}.scale"
    return [f"unjudged passages may have grades {grades_of(qrels)}; a file {file} says another"]


def read_sweep(folder: str | Path) -> Swept:
    """A finished sweep from its folder."""
    place = Path(folder)
    absent = next((n for n in (MANIFEST, RESULTS, PER_QUERY) if not (place / n).is_file()), None)
    if absent is not None:
        raise InputError(
            f"there is no {absent} in this folder",
            place=str(folder),
            remedy="name the folder that `rankproof sweep` wrote, or let it finish",
        )
    try:
        made = json.loads((place / MANIFEST).read_text(encoding="utf-8"))
        rows, per_query = (pl.read_parquet(place / name) for name in (RESULTS, PER_QUERY))
        driven = pl.read_parquet(place / LOAD) if "load" in made else None
    except (ValueError, OSError, pl.exceptions.PolarsError) as error:
        raise InputError(
            f"cannot read the results ({first_line(error)})",
            place=str(folder),
            remedy="run the sweep again",
        ) from None
    return Swept(place, rows, per_query, made, driven)


def _meaning(qrels: Qrels) -> str:
    """The line that maps every grade there is to 1–5, evenly up to the highest."""
    given = sorted(set(qrels.to_frame()["grade"]))
    example = "{0: 1, 1: 5}"
    if given[-1] > 0 and len(given) <= 10:
        highest = given[-1]
        example = ", ".join(f"{g}: {round(1 + 4 * max(g, 0) / highest)}" for g in given)
        example = f"{{{example}}}"
    return f"say what your grades mean: `grades: {example}`, say"


def _graded(settings: SweepSettings, corpus: Corpus, qrels: Qrels) -> tuple[Qrels, list[str]]:
    """The judgements of questions that are there, regraded as the settings say, and remarks."""
    frame = qrels.to_frame()
    notes = []
    if settings.grades is not None:
        known = frame["grade"].is_in(list(settings.grades))
        if not known.all():
            at = int((~known).arg_max() or 0)
            raise InputError(
                f"grade {frame['grade'][at]} is not among the grades to be changed",
                place=qrels.place(at),
                remedy=f"add `{frame['grade'][at]}: …` to `grades`",
            )
        frame = frame.with_columns(pl.col("grade").replace_strict(settings.grades))
    there = frame["query"].is_in(corpus.query_ids)
    strangers = frame.filter(~there)["query"].n_unique()
    if strangers:
        others = plural(strangers, "judged query is", "judged queries are")
        notes.append(f"{others} not among the questions: left out")
    frame = frame.filter(there)
    silent = len(set(corpus.query_ids) - set(frame["query"]))
    if silent:
        have = out_of(silent, len(corpus.query_ids), "question", "has", "have")
        notes.append(f"{have} no graded passage: left out")
    if not frame.height:
        raise InputError(
            f"no question of {corpus.label} is judged in it",
            place=str(corpus.qrels),
            remedy="check that the two belong together",
        )
    outside = frame.filter(~pl.col("grade").is_between(1, 5))
    if settings.at and outside.height:
        raise InputError(
            f"grade {outside['grade'][0]} is outside 1–5",
            place=f"{corpus.qrels}: query {shorten(outside['query'][0])}",
            remedy=_meaning(qrels),
        )
    highest = int(frame["grade"].to_numpy().max())
    if settings.at and highest < 4:
        raise InputError(
            f"no grade is above {highest}, and 4 or 5 means relevant",
            place=str(corpus.qrels),
            remedy=_meaning(qrels),
        )
    there = frame["doc"].is_in(corpus.document_ids)
    if set(settings.chunkings) != {NONE}:  # then a span of a document can be judged
        there |= frame["doc"].str.replace(SPAN, "").is_in(corpus.document_ids)
    unknown = frame.filter(~there)["doc"].n_unique()
    if corpus.document_ids and unknown:
        absent = plural(unknown, "judged passage is", "judged passages are")
        them = "it" if unknown == 1 else "them"
        notes.append(f"{absent} not in the corpus: no configuration finds {them}")
    if corpus.empty:
        notes.append(f"{plural(corpus.empty, 'passage is', 'passages are')} empty")
    scale = SET_SCALE if settings.at else qrels.scale if settings.grades is None else None
    return replace(read_qrels(frame, name=qrels.name), scale=scale), notes
