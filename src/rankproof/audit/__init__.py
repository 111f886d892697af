"""How far a number can be trusted at a precision: formats × scoring × measures.

results.py     Audit, Reading, Lead: what was found, as dicts and frames
embeddings.py  vectors, in every number format, searched plainly and in high precision
logits.py      logits of rerankers, under a low and a float32 activation
holdings.py    arrays, tensors and indexes as people hold them
listing.py     whether lists name their relevant documents first, and what that gains
agreement.py   Spearman's ρ to the float32 ranking
words.py       which conclusions survive, in sentences made of the figures
files.py       what files hold, audited by the settings and roles of a manifest
sources.py     files → vectors, ids, logits, BEIR folders
datasets.py    MTEB tasks and ir_datasets by name → BEIR folders in the cache
models.py      a sentence-transformers model → vectors or logits (torch)
paper.py       the paper's tables: FP32 | BF16 | BF16 + HPS, means over datasets
curves.py      measures over k with their ranges, as SVG
"""

from __future__ import annotations

from rankproof.audit.embeddings import audit_embeddings
from rankproof.audit.logits import audit_logits
from rankproof.audit.results import Audit, Lead, Reading

__all__ = ["Audit", "Lead", "Reading", "audit_embeddings", "audit_logits"]
