"""Whole search engines, which take questions and return ids and scores.

http.py            a user's server: POST {query, k}
python.py          a user's function, or a retriever of LangChain or LlamaIndex
run.py             results that an engine returned earlier, from a file
milvus.py          Milvus: a folder of this machine, or a cluster
elasticsearch.py   Elasticsearch: words, vectors, both
opensearch.py      OpenSearch: the same
"""
