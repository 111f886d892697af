"""What a result is made of, as its manifest tells it: verbs make it so, and `verify` again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from rankproof.data import read_qrels, read_run
from rankproof.data.sources import names_of
from rankproof.data.tables import Qrels, Run
from rankproof.evaluation import Policy, parse_all
from rankproof.foundation.manifest import run_of
from rankproof.measures import Measure


@dataclass(frozen=True)
class Given:
    """Settings and files by role; of these, what was read before is not read again."""

    config: Mapping[str, Any]
    files: Mapping[str, str | Path]
    seed: int = 0
    judged: Qrels | None = None
    tables: Iterable[Run] | None = None  # may be read as they are asked for
    called: Mapping[str, str] = field(default_factory=dict)  # what files were called then, by role

    @cached_property
    def measures(self) -> list[Measure]:
        return parse_all(self.config["measures"])

    @cached_property
    def policy(self) -> Policy:
        known = {f.name for f in fields(Policy)}
        return Policy(**{name: value for name, value in self.config.items() if name in known})

    @cached_property
    def qrels(self) -> Qrels:
        return self.judged if self.judged is not None else self.labels("qrels")

    def labels(self, role: str) -> Qrels:
        return read_qrels(self.files[role], format=self.config.get("qrels_format"))

    def named(self) -> dict[str, str | Path]:
        """The files that are runs, by name."""
        roles = {role: run_of(role) for role in self.files}
        return {name: self.files[role] for role, name in roles.items() if name is not None}

    def runs(self) -> Iterator[Run]:
        """One after the other, so that only one need be held."""
        if self.tables is not None:
            yield from self.tables
            return
        form = self.config.get("input_format")
        for name, path in self.named().items():
            yield read_run(path, format=form, name=name)

    def pools(self) -> list[Run]:
        """Runs that candidates are taken from."""
        form = self.config.get("input_format")
        paths = [str(path) for role, path in self.files.items() if role.startswith("pool ")]
        named = zip(paths, names_of(paths), strict=True)
        return [read_run(path, format=form, name=name) for path, name in named]
