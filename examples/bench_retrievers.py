"""LangChain's, LlamaIndex's and Milvus's vector search measured in one call, as they come.

    python examples/bench_retrievers.py [BEIR FOLDER]

Without a folder, on the corpus that ships with rankproof. Needs `pip install langchain-core
llama-index-core` and the extras `retrieval` and `milvus`. All three search the same vectors
exactly, so that they find the same; LangChain returns no scores, so its ties cannot be seen.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore
from llama_index.core import VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import TextNode

import rankproof as rp
from rankproof.commands.showcase import unpack
from rankproof.data.beir import read_passages
from rankproof.retrieval.embedders import make_embedder
from rankproof.retrieval.embedders.wordllama import WordllamaSettings
from rankproof.tradeoffs.sweep import Swept

K = 20
EMBEDDER = make_embedder(WordllamaSettings())


class ForLangChain(Embeddings):  # type: ignore[misc]
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [list(map(float, vector)) for vector in EMBEDDER.embed_passages(texts)]

    def embed_query(self, text: str) -> list[float]:
        return list(map(float, EMBEDDER.embed_queries([text])[0]))


class ForLlamaIndex(BaseEmbedding):  # type: ignore[misc]
    def _get_text_embedding(self, text: str) -> list[float]:
        return list(map(float, EMBEDDER.embed_passages([text])[0]))

    def _get_query_embedding(self, query: str) -> list[float]:
        return list(map(float, EMBEDDER.embed_queries([query])[0]))

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


def retrievers(passages: dict[str, str], folder: Path) -> dict[str, Any]:
    store = InMemoryVectorStore(ForLangChain())
    store.add_texts(list(passages.values()), ids=list(passages))
    nodes = [TextNode(id_=name, text=text) for name, text in passages.items()]
    index = VectorStoreIndex(nodes, embed_model=ForLlamaIndex())
    return {
        "langchain": store.as_retriever(search_kwargs={"k": K}),
        "llama-index": index.as_retriever(similarity_top_k=K),
        "milvus": {
            "type": "milvus",
            "uri": str(folder / "passages.db"),
            "index": "flat",
            "embedder": {"type": "wordllama"},
        },
    }


def measure(corpus: Path) -> Swept:
    with tempfile.TemporaryDirectory() as folder:
        found = retrievers(read_passages(corpus), Path(folder))
        return rp.bench(found, corpus=corpus, k=K, measures=["nDCG@10", "RR@10"])


def main() -> None:
    if len(sys.argv) > 1:
        print(measure(Path(sys.argv[1])))
        return
    with tempfile.TemporaryDirectory() as folder:
        unpack(Path(folder) / "try")
        print(measure(Path(folder) / "try" / "corpus"))


if __name__ == "__main__":
    main()
