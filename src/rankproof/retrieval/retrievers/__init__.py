"""Whole engines: questions in, ids and scores out.

http.py            a server of the user's: POST {query, k}
python.py          a function of the user's, or a retriever of LangChain or LlamaIndex
run.py             what an engine returned before, from a file
milvus.py          Milvus: a folder here, or a cluster
elasticsearch.py   Elasticsearch: words, vectors, both
opensearch.py      OpenSearch: the same
"""
