"""rankproof: retrieval evaluation you can trust.

    import rankproof as rp
    from rankproof import nDCG, RR

    result = rp.evaluate("qrels.txt", "run.trec", [nDCG@10, RR@10])
    result["nDCG@10"].expected, result["nDCG@10"].range

Names load when they are first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib

from rankproof.foundation.version import __version__

TYPE_CHECKING = False  # as typing has it, which takes longer to load than all of this
if TYPE_CHECKING:
    from typing import Any

    from rankproof.audit import Audit
    from rankproof.commands import diagnose
    from rankproof.commands.audit import audit_logits, audit_model, audit_scores, audit_vectors
    from rankproof.commands.ceilings import ceilings
    from rankproof.commands.choose import choose
    from rankproof.commands.compare import compare
    from rankproof.commands.doctor import doctor
    from rankproof.commands.eval import evaluate
    from rankproof.commands.gate import gate
    from rankproof.commands.health import Health
    from rankproof.commands.holes import holes
    from rankproof.commands.init import init
    from rankproof.commands.leaderboard import leaderboard
    from rankproof.commands.parts import ComponentList, parts
    from rankproof.commands.recommend import recommend
    from rankproof.commands.search import SearchResult, search
    from rankproof.commands.sweep import sweep
    from rankproof.commands.ties import ties
    from rankproof.commands.verification import Verification
    from rankproof.commands.verify import verify
    from rankproof.comparison.gate import Gate
    from rankproof.comparison.leaderboard import Leaderboard
    from rankproof.comparison.pairs import Comparison
    from rankproof.comparison.verdict import Verdict
    from rankproof.data import read_qrels, read_run
    from rankproof.data.tables import Qrels, Run
    from rankproof.data.ties import TieGroups
    from rankproof.evaluation import Evaluation, Evaluations, MeanScore, Policy, QuerySet
    from rankproof.evaluation.matrices import evaluate_arrays
    from rankproof.evaluation.tie_counts import TieReport, TieStatistics, tie_statistics
    from rankproof.foundation.errors import InputError, MeasureError, MissingExtra, RankproofError
    from rankproof.measures import *  # noqa: F403
    from rankproof.projects import Prepared
    from rankproof.projects.choosing import Chosen
    from rankproof.tradeoffs.bench import bench
    from rankproof.unjudged import Unjudged

HOME = {
    "audit": ("Audit",),
    "projects.choosing": ("Chosen",),
    "commands.audit": ("audit_logits", "audit_model", "audit_scores", "audit_vectors"),
    "commands": ("diagnose",),
    "commands.ceilings": ("ceilings",),
    "commands.choose": ("choose",),
    "commands.init": ("init",),
    "commands.recommend": ("recommend",),
    "commands.sweep": ("sweep",),
    "comparison.pairs": ("Comparison",),
    "comparison.verdict": ("Verdict",),
    "projects": ("Prepared",),
    "foundation.errors": ("InputError", "MeasureError", "MissingExtra", "RankproofError"),
    "evaluation": ("Evaluation", "Evaluations", "MeanScore", "Policy", "QuerySet"),
    "comparison.gate": ("Gate",),
    "commands.doctor": ("doctor",),
    "commands.health": ("Health",),
    "evaluation.matrices": ("evaluate_arrays",),
    "comparison.leaderboard": ("Leaderboard",),
    "data": ("read_qrels", "read_run"),
    "evaluation.tie_counts": ("TieReport", "TieStatistics", "tie_statistics"),
    "commands.compare": ("compare",),
    "commands.eval": ("evaluate",),
    "commands.gate": ("gate",),
    "commands.holes": ("holes",),
    "commands.leaderboard": ("leaderboard",),
    "commands.parts": ("ComponentList", "parts"),
    "commands.search": ("SearchResult", "search"),
    "commands.ties": ("ties",),
    "data.tables": ("Qrels", "Run"),
    "data.ties": ("TieGroups",),
    "tradeoffs.bench": ("bench",),
    "unjudged": ("Unjudged",),
    "commands.verification": ("Verification",),
    "commands.verify": ("verify",),
}
MEASURES = """
    AP AP11 AP_IA DCG ERR ERR_IA F1 GMAP Harm Hit Hits IPrec Judged Measure NRecall4 NRecall5 NumRel
    NumRelRet NumRet Outcomes P P4 P_IA R RAnWG RBP RBPResidual RR Rprec SetAP SetF SetP SetR
    StRecall Success UDCG alpha_DCG alpha_nDCG bpref infAP measure nDCG nERR_IA parse
""".split()  # noqa: SIM905
PACKAGES = ("audit", "golden")  # whose functions are reached by the package
_MODULE = {name: module for module, names in HOME.items() for name in names}
_MODULE |= dict.fromkeys(MEASURES, "measures")

__all__ = [
    "Audit",
    "Chosen",
    "Comparison",
    "ComponentList",
    "Evaluation",
    "Evaluations",
    "Gate",
    "Health",
    "InputError",
    "Leaderboard",
    "MeanScore",
    "MeasureError",
    "MissingExtra",
    "Policy",
    "Prepared",
    "Qrels",
    "QuerySet",
    "RankproofError",
    "Run",
    "SearchResult",
    "TieGroups",
    "TieReport",
    "TieStatistics",
    "Unjudged",
    "Verdict",
    "Verification",
    "__version__",
    "audit_logits",
    "audit_model",
    "audit_scores",
    "audit_vectors",
    "bench",
    "ceilings",
    "choose",
    "compare",
    "diagnose",
    "doctor",
    "evaluate",
    "evaluate_arrays",
    "gate",
    "holes",
    "init",
    "leaderboard",
    "parts",
    "read_qrels",
    "read_run",
    "recommend",
    "search",
    "sweep",
    "tie_statistics",
    "ties",
    "verify",
]
__all__ += MEASURES


def __getattr__(name: str) -> Any:
    if name in PACKAGES:  # importing it makes it an attribute
        return importlib.import_module(f"rankproof.{name}")
    if name not in _MODULE:
        raise AttributeError(f"module 'rankproof' has no attribute {name!r}")
    module = _MODULE[name]
    if module == "commands":  # a group of commands is their module: rp.diagnose.names
        value = importlib.import_module(f"rankproof.commands.{name}")
    else:
        value = getattr(importlib.import_module(f"rankproof.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
