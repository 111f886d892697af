"""The same work on Ray: figures equal to one machine's, to the last bit.

    evaluate, compare       runs in shards: partitioned Parquet, TREC, or a Ray Dataset
    search                  exact search over vectors in shards, ties and `cut` kept
    audit_embeddings, audit_logits   one task for each number format
    embed, score            a corpus through a model, checkpointed shard by shard
    connected               a running cluster, or this machine as one

Every worker needs rankproof installed in the same version. A script that calls these needs
`if __name__ == "__main__":`, as Ray starts processes.
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
