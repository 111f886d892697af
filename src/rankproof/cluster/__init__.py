"""Evaluation, search, audits and models on Ray, with the same values as on one machine.

Values agree to the last bit. Every worker needs the same version of rankproof. A script that calls
these functions needs `if __name__ == "__main__":`, because Ray starts processes.

    session.py     connecting to a cluster, waiting for tasks, errors of Ray
    shards.py      the files of a run as pieces of work
    runs.py        evaluate, compare: runs in partitioned Parquet, TREC, or a Ray Dataset
    vectors.py     search: exact search over vectors in shards, ties and `cut` kept
    audits.py      audit_embeddings, audit_logits: one task for each number format
    embedding.py   embed, score: a corpus through a model, shard by shard
"""

from __future__ import annotations

from rankproof.cluster.audits import audit_embeddings, audit_logits
from rankproof.cluster.embedding import embed, score
from rankproof.cluster.runs import compare, evaluate
from rankproof.cluster.session import connected
from rankproof.cluster.vectors import search

__all__ = [
    "audit_embeddings",
    "audit_logits",
    "compare",
    "connected",
    "embed",
    "evaluate",
    "score",
    "search",
]
