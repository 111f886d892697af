"""Audits: how far a number can be trusted at a precision. Formats × ways of scoring × measures.

For: which conclusions survive when vectors or logits are stored or scored in fewer bits. It scores
with `precision` and evaluates with `evaluation`; it defines no format, measure or statistic itself.

embeddings.py   vectors, in every number format, searched plainly and in high precision
logits.py       logits of rerankers and served scores, plain and in float32
model_audit.py  a sentence-transformers model → vectors or logits → their audit (torch)
readings.py     the reading of one setting; differences between readings; Spearman's ρ
results.py      Audit: all readings, and what they mean for the order of models
sentences.py    which conclusions survive, in sentences
tables.py, paper_tables.py, curves.py   tables; those of the paper; measures over k as SVG
list_order.py   whether lists name their relevant documents first, and what that gains
input_files.py, array_files.py   files of vectors, logits and served scores; arrays and indexes
datasets.py     MTEB tasks and ir_datasets by name → BEIR folders in the cache
"""

from __future__ import annotations

from rankproof.audit.embeddings import audit_embeddings
from rankproof.audit.logits import audit_logits
from rankproof.audit.readings import Lead, Reading
from rankproof.audit.results import Audit

__all__ = ["Audit", "Lead", "Reading", "audit_embeddings", "audit_logits"]
