"""The retrieval stack: embedders, BM25, vector indexes, fusion, rerankers, rewriting."""
