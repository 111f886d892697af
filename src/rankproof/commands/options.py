"""Parameters that several commands share, each described once.

A command takes them by `**options: Unpack[EvaluationOptions]`; the first line of a TypedDict's
docstring heads its panel in the help. Types that are heavy to import are written as strings, which
type checkers read and the command line takes as text.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from rankproof.commands.registry import Needs, Option, Source

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from rankproof.data import QrelsLike, RunLike
    from rankproof.data.query_groups import GroupsLike
    from rankproof.evaluation import Policy
    from rankproof.measures import Measure

Order = Literal["input", "docid", "trec_eval"]
Missing = Literal["zero", "skip"]
ScoreType = Literal["float64", "float32", "float16", "bfloat16"]
Like = Literal["trec_eval", "trec_eval10", "ir_measures", "mteb", "ranx", "gdeval"]

FORMATS = "trec, plain, msmarco, csv, tsv, json, jsonl, mteb, nuggets, parquet, arrow"
DEFAULT_MEASURES = ("nDCG@10", "RR@10", "AP@100", "R@100")
MAIN_MEASURE = DEFAULT_MEASURES[:1]


def _measure_names() -> Sequence[str]:
    from rankproof import MEASURES  # names alone: loads neither numpy nor the measures

    return [name for name in MEASURES if name[0].isupper() or name == "nDCG"]


Qrels = Annotated[
    "QrelsLike", Source("QRELS", "qrels"), "Relevance judgments; - is standard input."
]
Runs = Annotated[
    "RunLike | Sequence[RunLike] | Mapping[str, RunLike]",
    Source("RUN..."),
    "Runs, or rows of a sweep (FOLDER::ROW); - is standard input.",
]
Measures = Annotated[
    "str | Measure | Iterable[str | Measure]",
    Option(
        ("-m", "--measure"),
        "MEASURE,...",
        default_text=",".join(DEFAULT_MEASURES),
        completions=_measure_names,
    ),
    "Such as nDCG@10 or AP(rel=2)@100. `rankproof measures` lists them.",
]
Seed = Annotated[int, Option(minimum=0), "Seed of every random draw."]
Holes = Annotated[
    bool | None,
    "Add the range over every grade that unjudged documents could have; `rankproof holes` says "
    "more.",
]


Tasks = Annotated[
    "Sequence[str] | Mapping[str, tuple[QrelsLike, object]] | None",
    Option(("--task",), "NAME=QRELS,RUN,...", is_split=False),
    "A collection, in place of QRELS and RUN; may be repeated. Runs are compared by their mean "
    "over all tasks. A folder of task folders in place of QRELS names them, too.",
]
_TASKS_REPLAY = "it names its files inside --task; make it again with the same command"


def replay_without_tasks(
    arguments: "dict[str, Any]", stored: "Mapping[str, Any]"
) -> "dict[str, Any] | str":
    """Return the arguments of a call without tasks, or why one with tasks is not repeated."""
    return _TASKS_REPLAY if arguments.get("tasks") else arguments


Offline = Annotated[
    bool,
    Option(recorded=False),
    "Load models from this machine alone; HF_HUB_OFFLINE=1 says the same.",
]


class RankingOptions(TypedDict, total=False):
    """Policy.

    How lists are ordered and which queries and documents count.
    """

    order: Annotated[
        Order | None, Option(default_text="input"), "Tie-break behind the value as listed."
    ]
    missing: Annotated[
        Missing | None,
        Option(default_text="zero"),
        "A judged query that the run lacks counts 0, or is skipped.",
    ]
    candidates_only: Annotated[bool, "Count as relevant only what the run retrieved (rerankers)."]


class PolicyOptions(RankingOptions, total=False):
    """Policy.

    The same, and what is done to the lists before. `policy` is all of it as one value.
    """

    policy: Annotated["Policy | None", Option(hidden=True)]
    score_dtype: Annotated[
        ScoreType | None,
        Option(default_text="as they come"),
        "Round scores to this format before comparing them.",
    ]
    like: Annotated[
        Like | None,
        "Reproduce another tool (trec_eval is 9 and pytrec_eval): its score format, tie-break and "
        "choice of queries.",
    ]
    condensed: Annotated[bool, "Drop unjudged documents before ranking (trec_eval -J)."]
    depth: Annotated[
        int | None, Option(metavar="N", minimum=1), "End each list after rank N (trec_eval -M)."
    ]
    level: Annotated[
        int | None,
        Option(metavar="GRADE"),
        "The lowest grade that is relevant, for measures that name none (trec_eval -l).",
    ]


class JudgmentOptions(TypedDict, total=False):
    """Input.

    How judgments are read.
    """

    qrels_format: Annotated[
        str | None,
        Option(metavar="FORMAT", default_text="by ending and first bytes"),
        f"Format of QRELS: {FORMATS}.",
    ]


class InputOptions(JudgmentOptions, total=False):
    """Input.

    How files are read.
    """

    input_format: Annotated[
        str | None,
        Option(metavar="FORMAT", default_text="by ending and first bytes"),
        f"Format of the runs: {FORMATS}.",
    ]


class MemoryOptions(TypedDict, total=False):
    """Large runs.

    A run that is read in parts has the same values to the last bit. Where `memory` is given, bounds
    over unjudged documents are added on request alone.
    """

    memory: Annotated[
        int | str | None,
        Option(metavar="SIZE", default_text="half of what is available"),
        "Read runs that would take more in parts, such as 2GB.",
    ]
    spill_dir: Annotated[
        "str | os.PathLike[str] | None",
        Option(metavar="FOLDER", default_text="the system's temporary folder", recorded=False),
        "Where a run is spilled that is read in parts and whose queries are scattered.",
    ]


class GroupOptions(TypedDict, total=False):
    """Queries.

    Which queries are independent of one another.
    """

    groups: Annotated[
        "GroupsLike | None",
        Source("FILE", "groups"),
        "Queries that share a source: columns query, group. Intervals then count groups.",
    ]


class LabelOptions(TypedDict, total=False):
    """Labels.

    Whose the judgments are.
    """

    judge: Annotated[
        bool,
        Option(hidden=True),
        "The judgments are a judge's, such as a model: verdicts say so.",
    ]
    human: Annotated[
        "QrelsLike | None",
        Source("FILE", "human"),
        "Annotators' labels of some queries, drawn at random, where QRELS (or --judge FILE) are a "
        "judge's of all: verdicts are then those of annotators.",
    ]


class EvaluationOptions(PolicyOptions, InputOptions, MemoryOptions, GroupOptions, total=False):
    """Everything that a command which evaluates runs takes."""


class ComparisonOptions(EvaluationOptions, LabelOptions, total=False):
    """Everything that a command which compares runs takes."""


JudgedQrels = Annotated[
    "QrelsLike | None",
    Source("QRELS", "qrels", instead="--judge"),
    "Relevance judgments; - is standard input. --judge FILE names those of a judge.",
]


SCORING = Needs("scoring", ("ml_dtypes",), {"torch": "models, not only vectors and logits"})
_SETTINGS = ("pydantic", "yaml")
_STACK = (*_SETTINGS, "httpx2", "tenacity", "scipy", "bm25s")
_COMPONENTS = ("torch", "pgvector", "milvus", "elasticsearch", "opensearch")
COMPONENT_SETTINGS = Needs("retrieval", _SETTINGS)
RETRIEVAL = Needs("retrieval", _STACK, dict.fromkeys(_COMPONENTS, "their components"))
EMBEDDING = Needs("retrieval", _STACK, {"torch": "its models"})
JUDGING = Needs(
    "retrieval", _STACK, {"judge": "a chat model", "viewer": "corrections in the browser"}
)
DOCUMENTS = Needs("retrieval", _STACK, {"documents": "PDF and HTML"})
CHOOSING = Needs("rag", (*_STACK, "jinja2"))
DEMO = Needs("demo", (*_STACK, "wordllama", "ml_dtypes", "jinja2"))
