"""The retrieval stack: embed, index, search, fuse, rerank and rewrite; every result is cached.

It makes runs and the vectors, lists and scores behind them. It does not measure quality (that is
`evaluation`), choose a configuration (`tradeoffs`) or compute scores in high precision
(`precision`, which it uses).

    components.py, protocols.py   what a component is, how it is declared, and its interface
    workshop.py                   makes each thing once over one corpus, and keeps it on disk
    identity.py, cache.py         what a result depends on; where results are kept
    embedders/, rerankers/        models here and on servers; model_calls.py is common to both
    indexes/, sparse/             vectors and words; ranked_lists.py makes and cuts runs
    retrievers/, lucene.py        whole search engines
    rewriters/, languages.py      questions as people type them, made fit to be searched
    fusion.py, duplicates.py, depth.py   between retrieval and reranking
    chunks.py                     documents cut into chunks, and their judgments
    http.py, chat.py              requests to servers, with retries and rate limits
"""
