"""Measures as values, `nDCG@10`: one function each, which declares the measure's properties.

What a measure is computed from are tie groups; nothing here ranks or reads files.
Outside this package measures are read by `parse`, looked up in `REGISTRY` and computed by
`Measure.outcomes`.

registry.py     the decorator `measure`, what it declares, and the value it makes
parsing.py      text → measure, names of other tools included
outcomes.py     the values of a measure for every query, over all orders of its ties
random_orders.py    random orders of ties, for expectations that are too expensive in closed form
properties.py   how unjudged documents move a measure, and which judged ones it reads
linear.py       counts, precision, recall, RBP, nDCG: sums of a weight times a gain
split_ties.py   lists that end inside a tie
average_precision.py, first_relevant.py, expected_reciprocal_rank.py, preference.py,
inferred_precision.py, interpolated_precision.py    measures with mathematics of their own
diversity.py    lists whose documents cover aspects of their query, or nuggets
counts.py, sets.py, utility.py    a list as a set; sets of passages for a generator
padded_rows.py, hypergeometric.py    sums over rows of unequal length; drawing without replacement
"""

from __future__ import annotations

from rankproof.measures.average_precision import average_precision as AP
from rankproof.measures.average_precision import geometric as GMAP
from rankproof.measures.counts import num_rel as NumRel
from rankproof.measures.counts import num_rel_ret as NumRelRet
from rankproof.measures.counts import num_ret as NumRet
from rankproof.measures.counts import set_average_precision as SetAP
from rankproof.measures.counts import set_f as SetF
from rankproof.measures.counts import set_precision as SetP
from rankproof.measures.counts import set_recall as SetR
from rankproof.measures.diversity import alpha_dcg as alpha_DCG
from rankproof.measures.diversity import alpha_ndcg as alpha_nDCG
from rankproof.measures.diversity import average_precision_ia as AP_IA
from rankproof.measures.diversity import err_ia as ERR_IA
from rankproof.measures.diversity import n_err_ia as nERR_IA
from rankproof.measures.diversity import precision_ia as P_IA
from rankproof.measures.diversity import subtopic_recall as StRecall
from rankproof.measures.expected_reciprocal_rank import err as ERR
from rankproof.measures.first_relevant import reciprocal_rank as RR
from rankproof.measures.first_relevant import success as Success
from rankproof.measures.inferred_precision import inferred_average_precision as infAP
from rankproof.measures.interpolated_precision import eleven_points as AP11
from rankproof.measures.interpolated_precision import interpolated_precision as IPrec
from rankproof.measures.linear import dcg as DCG
from rankproof.measures.linear import f1 as F1
from rankproof.measures.linear import hits as Hits
from rankproof.measures.linear import judged as Judged
from rankproof.measures.linear import ndcg as nDCG
from rankproof.measures.linear import precision as P
from rankproof.measures.linear import r_precision as Rprec
from rankproof.measures.linear import rbp as RBP
from rankproof.measures.linear import rbp_residual as RBPResidual
from rankproof.measures.linear import recall as R
from rankproof.measures.outcomes import Outcomes, Sampling
from rankproof.measures.parsing import parse
from rankproof.measures.preference import bpref
from rankproof.measures.properties import CountOverNorm, CountOverRelevant, Extremes
from rankproof.measures.registry import REGISTRY, Definition, Measure, measure
from rankproof.measures.sets import harm as Harm
from rankproof.measures.sets import hit as Hit
from rankproof.measures.sets import n_recall_4 as NRecall4
from rankproof.measures.sets import n_recall_5 as NRecall5
from rankproof.measures.sets import precision_4 as P4
from rankproof.measures.sets import ra_nwg as RAnWG
from rankproof.measures.utility import udcg as UDCG

__all__ = [
    "AP",
    "AP11",
    "AP_IA",
    "DCG",
    "ERR",
    "ERR_IA",
    "F1",
    "GMAP",
    "P4",
    "P_IA",
    "RBP",
    "REGISTRY",
    "RR",
    "UDCG",
    "CountOverNorm",
    "CountOverRelevant",
    "Definition",
    "Extremes",
    "Harm",
    "Hit",
    "Hits",
    "IPrec",
    "Judged",
    "Measure",
    "NRecall4",
    "NRecall5",
    "NumRel",
    "NumRelRet",
    "NumRet",
    "Outcomes",
    "P",
    "R",
    "RAnWG",
    "RBPResidual",
    "Rprec",
    "Sampling",
    "SetAP",
    "SetF",
    "SetP",
    "SetR",
    "StRecall",
    "Success",
    "alpha_DCG",
    "alpha_nDCG",
    "bpref",
    "infAP",
    "measure",
    "nDCG",
    "nERR_IA",
    "parse",
]  # fmt: skip
