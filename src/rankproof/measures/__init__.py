"""Measures as values; each is registered where it is written."""

from __future__ import annotations

from rankproof.measures.cascade import err as ERR
from rankproof.measures.first import reciprocal_rank as RR
from rankproof.measures.first import success as Success
from rankproof.measures.linear import f1 as F1
from rankproof.measures.linear import hits as Hits
from rankproof.measures.linear import judged as Judged
from rankproof.measures.linear import ndcg as nDCG
from rankproof.measures.linear import precision as P
from rankproof.measures.linear import r_precision as Rprec
from rankproof.measures.linear import rbp as RBP
from rankproof.measures.linear import recall as R
from rankproof.measures.precision import average_precision as AP
from rankproof.measures.preference import bpref
from rankproof.measures.registry import REGISTRY, Definition, Measure, Outcomes, measure, parse
from rankproof.measures.sets import harm as Harm
from rankproof.measures.sets import hit as Hit
from rankproof.measures.sets import n_recall_4 as NRecall4
from rankproof.measures.sets import n_recall_5 as NRecall5
from rankproof.measures.sets import precision_4 as P4
from rankproof.measures.sets import ra_nwg as RAnWG
from rankproof.measures.utility import udcg as UDCG

__all__ = [
    "AP",
    "ERR",
    "F1",
    "P4",
    "RBP",
    "REGISTRY",
    "RR",
    "UDCG",
    "Definition",
    "Harm",
    "Hit",
    "Hits",
    "Judged",
    "Measure",
    "NRecall4",
    "NRecall5",
    "Outcomes",
    "P",
    "R",
    "RAnWG",
    "Rprec",
    "Success",
    "bpref",
    "measure",
    "nDCG",
    "parse",
]
