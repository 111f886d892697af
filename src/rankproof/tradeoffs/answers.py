"""Answers from each configuration's prompt, scored against reference answers.

    configurations ─ distinct prompts ─ generator ─▶ answers ─ exact, F1 or judge ─▶ correct

A prompt is a question and the passages that a configuration gives, tied ones in the order of their
ids. Configurations with the same passages share a prompt, which is sent once. Where a tie straddles
the end of the prompt, the stated tie-break and its reverse give two prompts; both are sent, and
each counts half.

    exact   1 where the words of the answer are those of a reference
    F1      2·shared / (words of the answer + words of the reference), of the nearest reference
    judge   1, ½ or 0 by a chat model that sees both

Words are lower case, without punctuation and the articles a, an, the (SQuAD's rule); a character of
Chinese or Japanese is a word. An abstention is not correct, and is counted separately.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from rankproof.foundation.progress import advance, progress
from rankproof.presentation.json_values import plain
from rankproof.retrieval.cache import Cache
from rankproof.retrieval.chat import Chat, unused_code
from rankproof.retrieval.http import Endpoint
from rankproof.retrieval.languages import WORD, Name, language_of
from rankproof.statistics.intervals import mean_intervals
from rankproof.statistics.rank_similarity import Correlation, query_correlation
from rankproof.tradeoffs.accuracy import accuracy_given_hit
from rankproof.tradeoffs.candidates import candidates
from rankproof.tradeoffs.prices import Price, token_cost
from rankproof.tradeoffs.results import configuration_matrix

ANSWERS = "answers.parquet"
ACCURACY = "answer accuracy"  # a column; low, high, min and max accompany it
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


class ChatSettings(Endpoint):
    """A chat model behind an OpenAI-compatible server."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = 0.0  # null: the model's own
    max_tokens: Count | None = 256

    def chat(self) -> Chat:
        """Return a client of the server."""
        return Chat(
            self.model,
            self.url,
            self.key_env,
            timeout_s=self.timeout_s,
            attempts=self.attempts,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
        )

    def identity(self, template: str) -> str:
        """Return a digest of all that decides a reply; the server's address does not."""
        return digest([self.model, self.temperature, self.max_tokens, templates(template)])


class AnswersSettings(Settings):
    """The model that answers from the prompts, and how its answers are scored."""

    generator: ChatSettings
    score: Literal["exact", "f1", "judge"] = "f1"
    judge: ChatSettings | None = None  # of the score judge
    questions: Count | None = None  # the first so many that have a reference; null: all
    parallel: Count = 4  # requests at a time

    @model_validator(mode="after")
    def _check_judge(self) -> AnswersSettings:
        """Raise InputError unless there is a judge exactly if it scores."""
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
    """Return the normalized words of a text."""
    normalized = unicodedata.normalize("NFKC", text).casefold()
    words = WORD.findall(normalized.replace("'", "").replace("’", ""))
    return [word for word in words if word not in _ARTICLES]


def exact(answer: str, references: Sequence[str]) -> float:
    """Return 1 if the answer has the words of a reference in the same order, else 0."""
    return float(any(words_of(answer) == words_of(reference) for reference in references))


def f1(answer: str, references: Sequence[str]) -> float:
    """Return 2·shared / (words of the answer + words of the reference), of the best reference."""
    answer_words = Counter(words_of(answer))
    best = 0.0
    for reference in references:
        reference_words = Counter(words_of(reference))
        total = answer_words.total() + reference_words.total()
        shared = (answer_words & reference_words).total()
        best = max(best, 2.0 * shared / total if total else 0.0)
    return best


def abstains(answer: str) -> bool:
    """True if the model said that it does not know, or said nothing."""
    words = " ".join(words_of(answer))
    return not words or words.startswith(_ABSTAINS)


# ----------------------------------------------------------------------------------- prompts


@cache
def templates(name: str) -> dict[Name, tuple[str, str]]:
    """Return the system and user part of a built-in prompt by language."""
    by_language: dict[Name, tuple[str, str]] = {}
    for language in ("en", "fr"):
        file = files("rankproof") / "resources" / "prompts" / f"{name}.{language}.txt"
        system, _, user = file.read_text(encoding="utf-8").partition("\n---\n")
        by_language[language] = system.strip(), user.strip()
    return by_language


def _fill_template(name: str, question: str, **parts: str) -> tuple[str, str]:
    """Return a prompt in the language of its question.

    All parts are inserted in one pass, so that braces in what people wrote are left as they are.
    """
    system, user = templates(name)[language_of(question)]
    values = {"question": question.strip(), **parts}
    values["code"] = unused_code("".join(values.values()))
    return system, re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], match[0]), user)


def prompt_documents(run: Run, k: int) -> pl.DataFrame:
    """query, order, docs: the first k of each list under the stated tie-break and its reverse.

    Tied passages are sorted by id, so that the two differ only where a tie straddles k.
    """
    ranks = candidates(run, "input")
    reversed_rank = pl.col("first") + pl.col("last") - pl.col("rank")
    both = [
        ranks.filter(rank <= k)
        .sort("query", "first", "doc")
        .group_by("query", maintain_order=True)
        .agg(docs="doc")
        .with_columns(order=pl.lit(order))
        for order, rank in (("stated", pl.col("rank")), ("reversed", reversed_rank))
    ]
    return pl.concat(both).select("query", "order", "docs")


# ------------------------------------------------------------------------------------ asking


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The reply to one prompt."""

    text: str
    tokens_in: int
    tokens_out: int


def ask_all(
    chosen: ChatSettings,
    template: str,
    prompts: Sequence[tuple[str, str]],
    cache: Cache,
    parallel: int,
    schema: dict[str, Any] | None = None,
) -> list[ModelReply]:
    """Return a reply to each prompt (system, user).

    Each distinct prompt is sent once, replies from the cache not at all, and each reply is cached
    as soon as it arrives.
    """
    fingerprint = chosen.identity(template)
    system_by_user = {user: system for system, user in prompts}
    cached = cache.get_many(fingerprint, template, list(system_by_user))
    replies = dict(zip(system_by_user, cached, strict=True))
    missing = [user for user, reply in replies.items() if reply is None]
    advance(len(system_by_user) - len(missing))
    if missing:
        chat = chosen.chat()

        def ask(user: str) -> None:
            answer = chat.ask(system_by_user[user], user, schema)
            reply = json.dumps([answer.text, answer.tokens_in, answer.tokens_out]).encode()
            cache.put_many(fingerprint, template, {user: reply})
            replies[user] = reply

        with ThreadPoolExecutor(min(parallel, len(missing))) as pool:
            futures = [pool.submit(ask, user) for user in missing]
            try:
                for done in as_completed(futures):
                    done.result()
                    advance()
            except BaseException:
                for future in futures:
                    future.cancel()
                chat.stop()
                raise
            finally:
                chat.close()
    return [ModelReply(*json.loads(replies[user] or b"[]")) for _, user in prompts]


def answer_prompts(
    settings: AnswersSettings,
    documents: Mapping[str, pl.DataFrame],
    *,
    questions: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    passage_text: Callable[[str], str],
    cache: Cache,
) -> pl.DataFrame:
    """configuration, query, order, prompt, answer, correct, abstained, tokens_in, tokens_out.

    `documents` has the `prompt_documents` of each configuration. `correct` is null where the
    judge's reply could not be read.
    """
    answerable = [query for query in questions if references.get(query)][: settings.questions]
    if not answerable:
        raise InputError(
            "no question has a reference answer",
            remedy='write {"_id": "…", "text": "…", "answer": "…"} in queries.jsonl',
        )
    rows = pl.concat(
        [frame.with_columns(configuration=pl.lit(name)) for name, frame in documents.items()]
    ).filter(pl.col("query").is_in(answerable))
    distinct = rows.select("query", "docs").unique(maintain_order=True)
    prompts = [
        _fill_template("answer", questions[query], passages=_number(map(passage_text, docs)))
        for query, docs in distinct.iter_rows()
    ]
    with progress("answering", len(set(prompts))):
        replies = ask_all(settings.generator, "answer", prompts, cache, settings.parallel)
    texts = [reply.text for reply in replies]
    queries = distinct["query"].to_list()
    answers = distinct.with_columns(
        pl.Series("prompt", [digest(pair)[:16] for pair in prompts], dtype=pl.String),
        pl.Series("answer", texts, dtype=pl.String),
        pl.Series(
            "correct",
            _score_answers(settings, queries, texts, questions, references, cache),
            dtype=pl.Float64,
        ),
        pl.Series("abstained", [abstains(text) for text in texts], dtype=pl.Boolean),
        pl.Series("tokens_in", [reply.tokens_in for reply in replies], dtype=pl.Int64),
        pl.Series("tokens_out", [reply.tokens_out for reply in replies], dtype=pl.Int64),
    )
    return rows.join(answers, on=["query", "docs"], maintain_order="left").select(
        *("configuration", "query", "order", "prompt", "answer", "correct", "abstained"),
        *("tokens_in", "tokens_out"),
    )


def _number(texts: Iterable[str]) -> str:
    return "\n\n".join(f"[{at}] {text.strip()}" for at, text in enumerate(texts, 1)) or "(none)"


def _score_answers(
    settings: AnswersSettings,
    queries: Sequence[str],
    texts: Sequence[str],
    questions: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    cache: Cache,
) -> list[float | None]:
    """Return how correct each answer is, 0 for an abstention; None: the judge is not understood."""
    rows = list(zip(queries, texts, strict=True))
    if settings.judge is None:
        score = exact if settings.score == "exact" else f1
        return [0.0 if abstains(text) else score(text, references[query]) for query, text in rows]
    checks = [
        _fill_template(
            "check", questions[query], references=" / ".join(references[query]), answer=text
        )
        for query, text in rows
        if not abstains(text)
    ]
    with progress("checking answers", len(set(checks))):
        replies = ask_all(settings.judge, "check", checks, cache, settings.parallel, _SCHEMA)
    verdicts = iter([_parse_verdict(reply.text) for reply in replies])
    return [0.0 if abstains(text) else next(verdicts) for _, text in rows]


def _parse_verdict(reply: str) -> float | None:
    """Return the value of the one verdict in a reply; None if there is none, or several."""
    verdicts = {match[1] for match in _VERDICT.finditer(reply)}
    return _VERDICTS[verdicts.pop()] if len(verdicts) == 1 else None


# ---------------------------------------------------------------------------------- summary


@dataclass(frozen=True, slots=True)
class AnswerCorrelation:
    """The correlation of a measure of passages with the accuracy of answers."""

    measure: str
    single: Correlation  # over pairs of configuration and question
    same: Correlation | None  # within questions: values less their mean over configurations

    def to_dict(self) -> dict[str, Any]:
        """Both correlations as JSON has them."""
        same = None if self.same is None else self.same.to_dict()
        return {"single": self.single.to_dict(), "same_question": same}

    def words(self) -> str:
        """Both correlations in a sentence."""
        if math.isnan(self.single.pearson):
            return f"{self.measure} and the answers do not vary together: no correlation."
        words = f"{self.measure} and right answers: r {_with_interval(self.single)}"
        if self.same is not None and not math.isnan(self.same.pearson):
            words += f", for the same question {_with_interval(self.same)}"
        return f"{words}."


def _with_interval(correlation: Correlation) -> str:
    low, high = correlation.pearson_ci
    interval = "" if math.isnan(low) else f" ({signed(low, 2)} to {signed(high, 2)})"
    return f"{signed(correlation.pearson, 2)}{interval}"


def summarize_answers(
    answers: pl.DataFrame,
    *,
    runs: Mapping[str, Run],
    prompts: Mapping[str, int],
    qrels: Qrels | None,
    price: Price | None,
    seed: int,
) -> pl.DataFrame:
    """Return a row per configuration: accuracy, its interval and range over ties, tokens, cost.

    With `qrels` on the scale 1–5 also the accuracy given a hit.
    """
    by_query = answers.group_by("configuration", "query", maintain_order=True).agg(
        pl.mean("correct").alias("mean"),
        pl.min("correct").alias("min"),
        pl.max("correct").alias("max"),
        pl.mean("abstained"),
        pl.mean("tokens_in"),
        pl.mean("tokens_out"),
        pl.n_unique("prompt").alias("prompts"),
    )
    rows = []
    for (name,), own in by_query.group_by("configuration", maintain_order=True):
        scored = own.drop_nulls("mean")
        low, high = mean_intervals(scored["mean"].to_numpy()[None])[0].tolist()
        read, written = (float(own[key].mean() or 0.0) for key in ("tokens_in", "tokens_out"))  # type: ignore[arg-type]
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
            "answers_unscored": own.height - scored.height,
            "answers_tied": int((own["prompts"] > 1).sum()),  # queries whose prompt ties decide
            "abstained": own["abstained"].mean(),
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
    answers: pl.DataFrame, per_query: pl.DataFrame, measures: Sequence[str], seed: int
) -> list[AnswerCorrelation]:
    """Correlate each measure with the accuracy of answers; queries are resampled whole."""
    correct = answers.group_by("configuration", "query", maintain_order=True).agg(
        pl.mean("correct")
    )
    names = correct["configuration"].unique(maintain_order=True).to_list()
    related = []
    for measure in measures:
        values = per_query.filter(pl.col("measure") == measure)
        both = correct.join(values, on=["configuration", "query"], maintain_order="left")
        if not both.height:
            continue
        x, y = (configuration_matrix(both, column, names) for column in ("value", "correct"))
        unknown = np.isnan(x) | np.isnan(y)
        x, y = (np.where(unknown, np.nan, matrix) for matrix in (x, y))
        same = None
        if len(names) > 1:
            has_several = (~unknown).sum(axis=0) > 1
            same = query_correlation(_center(x[:, has_several]), _center(y[:, has_several]), seed)
        related.append(AnswerCorrelation(measure, query_correlation(x, y, seed), same))
    return related


def _center(values: Float) -> Float:
    """Subtract from each column the mean of its known values."""
    known = ~np.isnan(values)
    mean = np.where(known, values, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    centered: Float = values - mean
    return centered


def describe_answers(
    settings: AnswersSettings,
    answers: pl.DataFrame,
    rows: pl.DataFrame,
    related: Sequence[AnswerCorrelation],
) -> list[str]:
    """Say who answered what, which answers are best, and what they correlate with."""
    best = rows.sort(ACCURACY, descending=True, nulls_last=True).row(0, named=True)
    interval = ""
    if best[f"{ACCURACY} low"] is not None:
        interval = f" ({best[f'{ACCURACY} low']:.3f} to {best[f'{ACCURACY} high']:.3f})"
    pairs = answers.select("configuration", "query").n_unique()
    questions = plural(answers["query"].n_unique(), "question")
    prompts = plural(answers["prompt"].n_unique(), "distinct prompt")
    tied = int(rows["answers_tied"].sum())
    lines = [
        f"{settings.generator.model} answered {questions} from {prompts}, which stand for "
        f"{plural(pairs, 'pair')} of configuration and question; in {tied:,} of these ties "
        "decide what the prompt holds.",
        f"Best answers: {best['configuration']}, {best[ACCURACY]:.3f}{interval} by "
        f"{settings.score}; it abstained on {best['abstained']:.0%}.",
    ]
    return [*lines, *(correlation.words() for correlation in related)]
