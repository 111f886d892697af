"""A process that builds golden sets in children of its own, which can be killed at any instant.

Forking one that has everything loaded starts a builder in milliseconds. Commands come on stdin,
a JSON line each; a child's pid, then how it ended, go to stdout.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from rankproof.foundation.config import check_config
from rankproof.golden.building import Build
from rankproof.golden.judges.llm import LlmJudge, LlmJudgeSettings
from rankproof.golden.settings import GoldenSettings
from rankproof.golden.store import Store


def build(config: dict[str, object], path: str, stage: str | None) -> None:
    settings = check_config(config, GoldenSettings, place="worker")
    judge = None  # of a panel, the build makes its own
    if isinstance(settings.judge, LlmJudgeSettings):
        judge = LlmJudge(settings.judge, settings.limits, sleep=lambda seconds: None)
    with Store(Path(path), create=True) as store:
        Build(settings, store, judge=judge).run(stage)  # type: ignore[arg-type]


def die_at(writes: int) -> None:
    """End this process, as by a kill, the moment so many writes are committed."""
    left = writes
    transaction, execute = Store.transaction, Store.execute

    def written(store: Store) -> None:
        nonlocal left
        if not store._db.in_transaction:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    @contextmanager
    def counted(store: Store) -> Iterator[None]:
        with transaction(store):
            yield
        written(store)

    def executed(store: Store, sql: str, parameters: Sequence[Any] = ()) -> None:
        execute(store, sql, parameters)
        written(store)

    for name, counting in (("transaction", counted), ("execute", executed)):
        setattr(Store, name, counting)


# What a build imports while it runs, and every child would import anew.
LATER = (
    *(
        "anyio.to_thread",
        "bm25s",
        "httpcore2",
        "httpx2",
        "tenacity",
        "rankproof.golden.rag_gs_ordering",
    ),
    *("rankproof.golden.judges.simulated", "rankproof.retrieval.rerankers.cross_encoder"),
    *(
        "rankproof.precision.model_patching",
        "rankproof.tradeoffs.stack",
        "rankproof.unjudged.judged_share",
    ),
)


def main() -> None:
    for name in LATER:
        import_module(name)
    for line in sys.stdin:
        config, path, stage, dies_at = json.loads(line)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                if dies_at:
                    die_at(dies_at)
                build(config, path, stage)
                code = 0
            finally:
                os._exit(code)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
