"""What a context is worth: answers from each configuration's prompt, scored against given ones.

    configurations ─ distinct prompts ─ generator ─▶ answers ─ exact, F1 or judge ─▶ correct

A prompt is a question and the passages that a configuration gives, those that tie in the order of
their ids: configurations with the same passages share it, and it is asked once. Where a tie
straddles the end of the prompt, the stated tie-break and its reverse give two prompts: both are
asked, and the answer counts half of each.

    exact   1 where the words of the answer are those of a reference
    F1      2·shared / (words of the answer + words of the reference), of the nearest reference
    judge   1, ½ or 0 by a chat model that sees both

Words are lower case, without punctuation and the articles a, an, the (SQuAD's rule); a character of
Chinese or Japanese is a word. An abstention is not right, and is counted apart.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

import numpy as np
import polars as pl
from pydantic import Field, model_validator

from rankproof.data.tables import Qrels, Run
from rankproof.foundation.arrays import Float
from rankproof.foundation.config import Count, Settings
from rankproof.foundation.errors import InputError
from rankproof.foundation.manifest import digest
from rankproof.foundation.phrasing import plural, signed
from rankproof.presentation.json_values import plain
from rankproof.retrieval.cache import Cache
from rankproof.retrieval.chat import Chat, unused_code
from rankproof.retrieval.http import Endpoint
from rankproof.retrieval.languages import WORD, Name, language_of
from rankproof.statistics.intervals import mean_intervals
from rankproof.statistics.rank_similarity import Correlation, within
from rankproof.tradeoffs.accuracy import accuracy_given_hit
from rankproof.tradeoffs.candidates import candidates
from rankproof.tradeoffs.prices import Price, token_cost

ANSWERS = "answers.parquet"
ACCURACY = "answer accuracy"  # the column; low, high, min and max stand beside it
_ABSTAINS = ("i do not know", "i dont know", "je ne sais pas")
_ARTICLES = frozenset({"a", "an", "the"})
_VERDICTS = {"correct": 1.0, "partly": 0.5, "wrong": 0.0}
_VERDICT = re.compile(r'"verdict"\s*:\s*"(correct|partly|wrong)"')
_SCHEMA = {
    "type": "object",
    "properties": {"verdict": {"type": "string", "enum": list(_VERDICTS)}},
    "required": ["verdict"],
    "additionalProperties": False,
}
Tell = Callable[[float], None]


class ChatSettings(Endpoint):
    """A chat model behind an OpenAI-compatible server."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = 0.0  # null: the model's own
    max_tokens: Count | None = 256

    def chat(self) -> Chat:
        return Chat(
            *(self.model, self.url, self.key_env),
            timeout_s=self.timeout_s,
            attempts=self.attempts,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
        )

    def identity(self, template: str) -> str:
        """What decides a reply; where the server is does not."""
        return digest([self.model, self.temperature, self.max_tokens, templates(template)])


class AnswersSettings(Settings):
    """Who answers from the prompts, and how an answer is scored."""

    generator: ChatSettings
    score: Literal["exact", "f1", "judge"] = "f1"
    judge: ChatSettings | None = None  # of the score judge
    questions: Count | None = None  # the first so many that have a reference; null: all
    parallel: Count = 4  # requests at a time

    @model_validator(mode="after")
    def _judged(self) -> AnswersSettings:
        if (self.judge is not None) != (self.score == "judge"):
            raise InputError(
                "score: judge needs a judge"
                if self.judge is None
                else f"a judge with the score {self.score}",
                remedy="name a chat model under `judge`, and `score: judge`",
            )
        return self


# ------------------------------------------------------------------------------------ scores


def words_of(text: str) -> list[str]:
    """The words that are compared."""
    plain = unicodedata.normalize("NFKC", text).casefold().replace("'", "").replace("’", "")
    return [word for word in WORD.findall(plain) if word not in _ARTICLES]


def exact(answer: str, references: Sequence[str]) -> float:
    """1 where the answer has the words of a reference, in their order."""
    return float(any(words_of(answer) == words_of(known) for known in references))


def f1(answer: str, references: Sequence[str]) -> float:
    """2·shared / (words of the answer + words of the reference), of the nearest reference."""
    given = Counter(words_of(answer))
    best = 0.0
    for known in references:
        wanted = Counter(words_of(known))
        total = given.total() + wanted.total()
        best = max(best, 2.0 * (given & wanted).total() / total if total else 0.0)
    return best


def abstains(answer: str) -> bool:
    """Whether the model said that it does not know, or nothing."""
    said = " ".join(words_of(answer))
    return not said or said.startswith(_ABSTAINS)


# ----------------------------------------------------------------------------------- prompts


@cache
def templates(name: str) -> dict[Name, tuple[str, str]]:
    """System and user part of a prompt that ships, by language."""
    found: dict[Name, tuple[str, str]] = {}
    for language in ("en", "fr"):
        file = files("rankproof") / "resources" / "prompts" / f"{name}.{language}.txt"
        system, _, user = file.read_text(encoding="utf-8").partition("\n---\n")
        found[language] = system.strip(), user.strip()
    return found


def _filled(name: str, question: str, **parts: str) -> tuple[str, str]:
    """A prompt in the language of its question; what people wrote is put in last, and once."""
    system, user = templates(name)[language_of(question)]
    values = {"question": question.strip(), **parts}
    values["code"] = unused_code("".join(values.values()))
    return system, re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], match[0]), user)


def contexts(run: Run, k: int) -> pl.DataFrame:
    """query, order, docs: the first k of each list under the stated tie-break and its reverse.

    Passages that tie stand by their ids, so that the two differ only where a tie straddles k.
    """
    listed = candidates(run, "input")
    turned = pl.col("first") + pl.col("last") - pl.col("rank")
    both = [
        listed.filter(rank <= k)
        .sort("query", "first", "doc")
        .group_by("query", maintain_order=True)
        .agg(docs="doc")
        .with_columns(order=pl.lit(order))
        for order, rank in (("stated", pl.col("rank")), ("reversed", turned))
    ]
    return pl.concat(both).select("query", "order", "docs")


# ------------------------------------------------------------------------------------ asking


@dataclass(frozen=True, slots=True)
class Replied:
    """What came of one prompt."""

    text: str
    tokens_in: int
    tokens_out: int


def ask_all(
    chosen: ChatSettings,
    template: str,
    prompts: Sequence[tuple[str, str]],
    cache: Cache,
    parallel: int,
    tell: Tell,
    schema: dict[str, Any] | None = None,
) -> list[Replied]:
    """A reply to each; one that was given before is not asked for again, and each is kept as soon
    as it is there."""
    role = (chosen.identity(template), template)
    distinct = {user: system for system, user in prompts}
    held = dict(zip(distinct, cache.get_many(*role, list(distinct)), strict=True))
    missing = [user for user, value in held.items() if value is None]
    tell(len(distinct) - len(missing))
    if missing:
        chat = chosen.chat()

        def ask(user: str) -> None:
            answer = chat.ask(distinct[user], user, schema)
            said = json.dumps([answer.text, answer.tokens_in, answer.tokens_out]).encode()
            cache.put_many(*role, {user: said})
            held[user] = said

        with ThreadPoolExecutor(min(parallel, len(missing))) as pool:
            asked = [pool.submit(ask, user) for user in missing]
            try:
                for done in as_completed(asked):
                    done.result()
                    tell(1)
            except BaseException:
                for future in asked:
                    future.cancel()
                chat.stop()
                raise
            finally:
                chat.close()
    return [Replied(*json.loads(held[user] or b"[]")) for _, user in prompts]


def answer(
    settings: AnswersSettings,
    given: Mapping[str, pl.DataFrame],
    questions: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    passages: Callable[[str], str],
    cache: Cache,
    progress: Callable[..., Any],
) -> pl.DataFrame:
    """configuration, query, order, prompt, answer, correct, abstained, tokens_in, tokens_out.

    `given` has the contexts of each configuration. `correct` is null where the judge's reply
    could not be read.
    """
    known = [query for query in questions if references.get(query)][: settings.questions]
    if not known:
        raise InputError(
            "no question has a reference answer",
            remedy='write {"_id": "…", "text": "…", "answer": "…"} in queries.jsonl',
        )
    some = pl.concat(
        [frame.with_columns(configuration=pl.lit(name)) for name, frame in given.items()]
    ).filter(pl.col("query").is_in(known))
    distinct = some.select("query", "docs").unique(maintain_order=True)
    asked = [
        _filled("answer", questions[query], passages=_numbered([passages(doc) for doc in docs]))
        for query, docs in distinct.iter_rows()
    ]
    with progress("answering", len(set(asked))) as tell:
        replies = ask_all(settings.generator, "answer", asked, cache, settings.parallel, tell)
    texts = [reply.text for reply in replies]
    silent = [abstains(text) for text in texts]
    right = _scored(
        settings, distinct["query"].to_list(), texts, silent, questions, references, cache, progress
    )
    told = distinct.with_columns(
        pl.Series("prompt", [digest(pair)[:16] for pair in asked], dtype=pl.String),
        pl.Series("answer", texts, dtype=pl.String),
        pl.Series("correct", right, dtype=pl.Float64),
        pl.Series("abstained", silent, dtype=pl.Boolean),
        pl.Series("tokens_in", [reply.tokens_in for reply in replies], dtype=pl.Int64),
        pl.Series("tokens_out", [reply.tokens_out for reply in replies], dtype=pl.Int64),
    )
    return some.join(told, on=["query", "docs"], maintain_order="left").select(
        *("configuration", "query", "order", "prompt", "answer", "correct", "abstained"),
        *("tokens_in", "tokens_out"),
    )


def _numbered(texts: Sequence[str]) -> str:
    return "\n\n".join(f"[{at}] {text.strip()}" for at, text in enumerate(texts, 1)) or "(none)"


def _scored(
    settings: AnswersSettings,
    queries: Sequence[str],
    texts: Sequence[str],
    silent: Sequence[bool],
    questions: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    cache: Cache,
    progress: Callable[..., Any],
) -> list[float | None]:
    """How right each answer is; an abstention is not."""
    rows = list(zip(queries, texts, silent, strict=True))
    if settings.judge is None:
        score = exact if settings.score == "exact" else f1
        return [0.0 if quiet else score(text, references[query]) for query, text, quiet in rows]
    checks = [
        _filled("check", questions[query], references=" / ".join(references[query]), answer=text)
        for query, text, quiet in rows
        if not quiet
    ]
    with progress("checking answers", len(set(checks))) as tell:
        judged = ask_all(
            settings.judge, "check", checks, cache, settings.parallel, tell, schema=_SCHEMA
        )
    verdicts = iter([_read(reply.text) for reply in judged])
    return [0.0 if quiet else next(verdicts) for _, _, quiet in rows]


def _read(reply: str) -> float | None:
    found = {match[1] for match in _VERDICT.finditer(reply)}
    return _VERDICTS[found.pop()] if len(found) == 1 else None


# ----------------------------------------------------------------------------------- figures


@dataclass(frozen=True, slots=True)
class Sets:
    """How far a measure of sets goes with the accuracy of answers."""

    measure: str
    single: Correlation  # over pairs of configuration and question
    same: Correlation | None  # of the same question: each less its mean over configurations

    def to_dict(self) -> dict[str, Any]:
        same = None if self.same is None else self.same.to_dict()
        return {"single": self.single.to_dict(), "same_question": same}

    def words(self) -> str:
        if math.isnan(self.single.pearson):
            return f"{self.measure} and the answers do not vary together: no correlation."
        said = f"{self.measure} and right answers: r {_followed(self.single)}"
        if self.same is not None and not math.isnan(self.same.pearson):
            said += f", for the same question {_followed(self.same)}"
        return f"{said}."


def _followed(found: Correlation) -> str:
    low, high = found.pearson_ci
    ends = "" if math.isnan(low) else f" ({signed(low, 2)} to {signed(high, 2)})"
    return f"{signed(found.pearson, 2)}{ends}"


def by_configuration(
    told: pl.DataFrame,
    runs: Mapping[str, Run],
    prompts: Mapping[str, int],
    qrels: Qrels | None,
    price: Price | None,
    seed: int,
) -> pl.DataFrame:
    """A row for each: accuracy with its interval, over tie-breaks, given a hit; abstentions, tokens
    and cost. `qrels` on the scale 1–5 are what a hit is told by."""
    each = told.group_by("configuration", "query", maintain_order=True).agg(
        pl.mean("correct").alias("mean"),
        pl.min("correct").alias("min"),
        pl.max("correct").alias("max"),
        pl.mean("abstained"),
        pl.mean("tokens_in"),
        pl.mean("tokens_out"),
        pl.n_unique("prompt").alias("prompts"),
    )
    rows = []
    for (name,), some in each.group_by("configuration", maintain_order=True):
        scored = some.drop_nulls("mean")
        low, high = mean_intervals(scored["mean"].to_numpy()[None])[0].tolist()
        read, written = (float(some[key].mean() or 0.0) for key in ("tokens_in", "tokens_out"))  # type: ignore[arg-type]
        cost = None
        if price is not None and price.per_million_tokens is not None:
            cost = token_cost(read, price.per_million_tokens)
            cost += token_cost(written, price.per_written)
        row: dict[str, Any] = {
            "configuration": name,
            ACCURACY: scored["mean"].mean(),
            f"{ACCURACY} low": plain(low),
            f"{ACCURACY} high": plain(high),
            f"{ACCURACY} min": scored["min"].mean(),
            f"{ACCURACY} max": scored["max"].mean(),
            "answers": scored.height,
            "answers_unscored": some.height - scored.height,
            "answers_tied": int((some["prompts"] > 1).sum()),  # prompts that ties decide
            "abstained": some["abstained"].mean(),
            "answer_tokens_in": read,
            "answer_tokens_out": written,
            "answers_cost_per_1000": cost,
        }
        if qrels is not None and scored.height:
            correct = dict(scored.select("query", "mean").iter_rows())
            hit = accuracy_given_hit(runs[str(name)], qrels, correct, prompts[str(name)], seed=seed)
            row["accuracy given hit"] = plain(hit.expected)
            row["accuracy given hit low"], row["accuracy given hit high"] = plain(hit.ci)
            row["hits"] = hit.hits
        rows.append(row)
    return pl.DataFrame(rows, infer_schema_length=None)


def correlations(
    told: pl.DataFrame, per_query: pl.DataFrame, measures: Sequence[str], seed: int
) -> list[Sets]:
    """Do better sets make better answers here? Queries are resampled whole."""
    correct = told.group_by("configuration", "query", maintain_order=True).agg(pl.mean("correct"))
    names = correct["configuration"].unique(maintain_order=True).to_list()
    found = []
    for measure in measures:
        some = per_query.filter(pl.col("measure") == measure)
        both = correct.join(some, on=["configuration", "query"], maintain_order="left")
        if not both.height:
            continue
        x, y = (_matrix(both, column, names) for column in ("value", "correct"))
        unknown = np.isnan(x) | np.isnan(y)
        x, y = (np.where(unknown, np.nan, values) for values in (x, y))
        same = None
        if len(names) > 1:
            several = (~unknown).sum(axis=0) > 1
            same = within(_less_mean(x[:, several]), _less_mean(y[:, several]), seed)
        found.append(Sets(measure, within(x, y, seed), same))
    return found


def _matrix(frame: pl.DataFrame, column: str, names: Sequence[str]) -> Float:
    wide = frame.pivot("configuration", index="query", values=column, sort_columns=False)
    values: Float = wide.select(names).cast(pl.Float64).fill_null(math.nan).to_numpy().T
    return values


def _less_mean(values: Float) -> Float:
    known = ~np.isnan(values)
    mean = np.where(known, values, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    less: Float = values - mean
    return less


def in_words(
    settings: AnswersSettings, told: pl.DataFrame, rows: pl.DataFrame, found: Sequence[Sets]
) -> list[str]:
    """Who answered what, whose answers are best, and whether better sets make them."""
    best = rows.sort(ACCURACY, descending=True, nulls_last=True).row(0, named=True)
    span = ""
    if best[f"{ACCURACY} low"] is not None:
        span = f" ({best[f'{ACCURACY} low']:.3f} to {best[f'{ACCURACY} high']:.3f})"
    pairs = told.select("configuration", "query").n_unique()
    tied = int(rows["answers_tied"].sum())
    lines = [
        f"{settings.generator.model} answered {plural(told['query'].n_unique(), 'question')} from "
        f"{plural(told['prompt'].n_unique(), 'distinct prompt')}, which stand for "
        f"{plural(pairs, 'pair')} of configuration and question; in {tied:,} of these ties "
        "decide what the prompt holds.",
        f"Best answers: {best['configuration']}, {best[ACCURACY]:.3f}{span} by {settings.score}; "
        f"it abstained on {best['abstained']:.0%}.",
    ]
    return [*lines, *(one.words() for one in found)]
