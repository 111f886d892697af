"""PostgreSQL with the pgvector extension: every passage compared, or an HNSW index.

A table is named by a digest of its vectors and settings and made in one transaction: where it
exists it is whole, so that sweeps share a server and a stopped one goes on. The connection string
stays in the environment. It holds a password, so nothing that libpq says of it is passed on.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import unquote, urlsplit

import numpy as np
import polars as pl
from pydantic import Field

from rankproof.foundation.arrays import Array
from rankproof.foundation.config import Count, Settings, read_secret
from rankproof.foundation.errors import InputError, MissingExtra
from rankproof.retrieval.components import is_here, part
from rankproof.retrieval.protocols import Retrieved, Vectors
from rankproof.retrieval.row_lists import check_asked, run_of, timed

_KIND = "rankproof pgvector 1"
_PATIENCE = 10  # seconds to wait for the server
_STEP = 1000  # passages between two words of progress
_TYPES = {"float32": "vector", "float16": "halfvec", "bit": "bit"}
_OPERATORS = {"float32": "<#>", "float16": "<#>", "bit": "<~>"}
_CLASSES = {"float32": "vector_ip_ops", "float16": "halfvec_ip_ops", "bit": "bit_hamming_ops"}
_DIMENSIONS = {"float32": 2000, "float16": 4000, "bit": 64000}  # that HNSW takes
_MOST = 1000  # passages that one HNSW scan returns


class PgvectorSettings(Settings):
    """PostgreSQL with the pgvector extension. The connection string is in the environment."""

    operation: ClassVar[frozenset[str]] = frozenset({"dsn_env"})

    type: Literal["pgvector"]
    dsn_env: str = "RANKPROOF_POSTGRES"
    method: Literal["flat", "hnsw"] = "flat"
    format: Literal["float32", "float16", "bit"] = "float32"
    m: Annotated[int, Field(ge=2, le=100)] = 16
    ef_construction: Annotated[int, Field(ge=4, le=1000)] = 64
    ef_search: Annotated[int, Field(ge=1, le=1000)] = 100
    candidates: Count | None = None  # of `bit`: rescored with the stored vectors

    @property
    def over_network(self) -> bool:
        """A socket of this machine is no network."""
        dsn = os.environ.get(self.dsn_env, "")
        named = re.search(r"\bhost\s*=\s*'?([^\s']*)", dsn)
        try:
            host = urlsplit(dsn).hostname or ""
        except ValueError:  # no address: connecting says so
            host = "?"
        return not is_here(named[1] if named else unquote(host))


@part("index", "pgvector", extra="pgvector", imports=("psycopg", "pgvector"), network=True)
class PgvectorIndex:
    """A table on a server: `code` in the format searched, `original` where it is rescored with."""

    def __init__(
        self,
        settings: PgvectorSettings,
        vectors: Vectors,
        document_ids: pl.Series,
        progress: Callable[[float], None] | None = None,
    ):
        _packages()
        self.settings = settings
        self.document_ids = document_ids
        self.dimensions = vectors.shape[1]
        limit = _DIMENSIONS[settings.format]
        if settings.method == "hnsw" and self.dimensions > limit:
            raise InputError(
                f"{self.dimensions} dimensions; pgvector's HNSW takes {limit} in {settings.format}",
                place=self._place,
                remedy="keep fewer dimensions, use method flat or a narrower format",
            )
        self._connection: Any = None
        self._rescores = settings.format == "bit" and settings.candidates is not None
        self.table = f"rankproof_{self._digest(vectors)}"
        with self._connect() as connection:
            said = self._make(connection, vectors, progress)
            size = connection.execute("SELECT pg_total_relation_size(%s::regclass)", [self.table])
            self.bytes: int = int(size.fetchone()[0])
        self.build_seconds: float = said["build_seconds"]
        if progress is not None and said["reused"]:
            progress(len(vectors))

    @property
    def name(self) -> str:
        return f"pgvector {self.settings.method} {self.settings.format}"

    @property
    def _place(self) -> str:
        return f"PostgreSQL (${self.settings.dsn_env})"

    def search(self, queries: Vectors, k: int, query_ids: Sequence[str] | None = None) -> Retrieved:
        """One query after the other, each timed by itself, the way to the server included.

        Comparing every passage, equal scores keep the one that comes first, and `Run.cut` counts
        those left out at the step where the format chose. HNSW does not know what it left out.
        """
        check_asked(queries, k, self.dimensions)
        wanted = max(k, (self.settings.candidates or 0) if self._rescores else 0)
        wanted = min(wanted, len(self.document_ids))
        hnsw = self.settings.method == "hnsw"
        if hnsw and wanted > _MOST:
            raise InputError(
                f"{wanted} passages of one query; pgvector's HNSW returns at most {_MOST}",
                place=self._place,
                remedy="ask for fewer, or use method flat",
            )
        query = self._query(wanted)
        with self._connect() as connection:
            if hnsw:
                width = min(_MOST, max(self.settings.ef_search, wanted))
                connection.execute(f"SET hnsw.ef_search = {width}")
                # A planner that finds the table small would read all of it.
                connection.execute("SET enable_seqscan = off")

            def ask(vector: Array) -> tuple[Array, Array, int]:
                given = {"code": self._code(vector), "original": vector}
                answer = connection.execute(query, given, prepare=True).fetchall()
                return self._best(np.array(answer, np.float64), wanted, k)

            best, seconds = timed(np.ascontiguousarray(queries, np.float32), ask)
        found = [(rows, scores) for rows, scores, _ in best]
        cut = None if hnsw else np.array([left for *_, left in best], np.int64)
        run = run_of(self.name, query_ids, self.document_ids, found, "float32", cut)
        return Retrieved(run, seconds)

    def drop(self) -> None:
        """Remove the table from the server."""
        with self._connect() as connection:
            connection.execute(f"DROP TABLE IF EXISTS {self.table}")

    def _query(self, wanted: int) -> str:
        """SQL for (row, distance in the format[, minus inner product of the original])."""
        operator = _OPERATORS[self.settings.format]
        distance = f"code {operator} %(code)s"
        rescored = ", original <#> %(original)s" if self._rescores else ""
        # An index scan serves ORDER BY … LIMIT alone; it does not know of ties.
        limit = f"LIMIT {wanted}"
        if self.settings.method == "flat":
            limit = f"FETCH FIRST {wanted} ROWS WITH TIES"
        return f"SELECT row, {distance}{rescored} FROM {self.table} ORDER BY {distance} {limit}"

    def _best(self, answer: Array, wanted: int, k: int) -> tuple[Array, Array, int]:
        """Rows and scores of the k best, and how many that tie with the last chosen are out."""
        if not len(answer):
            return np.empty(0, np.int64), np.empty(0, np.float64), 0
        chosen = answer[np.lexsort((answer[:, 0], answer[:, 1]))][:wanted]
        if self._rescores:
            left = len(answer) - len(chosen)
            chosen = chosen[np.lexsort((chosen[:, 0], chosen[:, 2]))][:k]
        else:
            chosen = chosen[:k]
            left = int(
                (answer[:, 1] == chosen[-1, 1]).sum() - (chosen[:, 1] == chosen[-1, 1]).sum()
            )
        # + 0.0: minus zero is zero.
        return chosen[:, 0].astype(np.int64), -chosen[:, -1] + 0.0, left

    def _code(self, vector: Array) -> Any:
        """A vector as the column `code` holds it."""
        from pgvector import Bit, HalfVector

        if self.settings.format == "bit":
            return Bit(vector > 0)
        return HalfVector(vector) if self.settings.format == "float16" else vector

    def _digest(self, vectors: Vectors) -> str:
        """Of all that decides what the table holds; efSearch is free to change."""
        kept = self.settings.model_dump(include={"method", "format"})
        if self.settings.method == "hnsw":
            kept |= self.settings.model_dump(include={"m", "ef_construction"})
        kept["original"] = self._rescores
        sha = hashlib.sha256(json.dumps([_KIND, kept, vectors.shape]).encode())
        sha.update(np.ascontiguousarray(vectors).data)
        return sha.hexdigest()[:24]

    def _make(
        self, connection: Any, vectors: Vectors, progress: Callable[[float], None] | None
    ) -> dict[str, Any]:
        """Make the table unless it is there; its comment says how long that took."""
        form, size = self.settings.format, self.dimensions
        with connection.transaction():
            # Whoever comes second waits here, and then finds the table.
            lock = int(self.table[-15:], 16)
            connection.execute("SELECT pg_advisory_xact_lock(%s)", [lock])
            there = connection.execute(
                "SELECT obj_description(to_regclass(%s)::oid, 'pg_class')", [self.table]
            ).fetchone()[0]
            if there is not None:
                return {**json.loads(there), "reused": True}
            begun = time.perf_counter()
            original = f", original vector({size})" if self._rescores else ""
            connection.execute(
                f"CREATE TABLE {self.table} "
                f"(row integer PRIMARY KEY, code {_TYPES[form]}({size}) NOT NULL{original})"
            )
            columns = "row, code, original" if self._rescores else "row, code"
            types = ["int4", _TYPES[form], *(["vector"] if self._rescores else [])]
            with connection.cursor().copy(
                f"COPY {self.table} ({columns}) FROM STDIN WITH (FORMAT BINARY)"
            ) as copy:
                copy.set_types(types)
                for row, vector in enumerate(np.ascontiguousarray(vectors, np.float32)):
                    code = self._code(vector)
                    copy.write_row((row, code, vector) if self._rescores else (row, code))
                    if progress is not None and (row + 1) % _STEP == 0:
                        progress(_STEP)
            if progress is not None:
                progress(len(vectors) % _STEP)
            if self.settings.method == "hnsw":
                connection.execute(
                    f"CREATE INDEX ON {self.table} USING hnsw (code {_CLASSES[form]}) "
                    f"WITH (m = {self.settings.m}, "
                    f"ef_construction = {self.settings.ef_construction})"
                )
            said = {"kind": _KIND, "build_seconds": time.perf_counter() - begun}
            connection.execute(f"COMMENT ON TABLE {self.table} IS '{json.dumps(said)}'")
        connection.execute(f"ANALYZE {self.table}")
        return {**said, "reused": False}

    @contextmanager
    def _connect(self) -> Iterator[Any]:
        """The connection, kept between searches as a service keeps it; every error one line
        without the password."""
        psycopg = _packages()
        try:
            if not self._alive():
                self._connection = self._new()
                self._closing = weakref.finalize(self, self._connection.close)
            yield self._connection
        except psycopg.Error as error:
            self.close()
            said = error.diag.message_primary  # the server's own words; it never had the string
            problem = f"the server says: {said}" if said else "the connection was lost"
            raise InputError(
                problem, place=self._place, remedy="see the server's log, and run again"
            ) from None
        except BaseException:
            self.close()  # what it was doing may not be finished
            raise

    def _alive(self) -> bool:
        """Whether there is a connection that the server did not close meanwhile."""
        if self._connection is None:
            return False
        try:
            self._connection.execute("SELECT 1")
        except _packages().Error:
            self.close()
            return False
        return True

    def _new(self) -> Any:
        psycopg = _packages()
        dsn = read_secret(self.settings.dsn_env, "PostgreSQL")
        try:
            connection = psycopg.connect(dsn, connect_timeout=_PATIENCE, autocommit=True)
        except (psycopg.Error, UnicodeError) as error:
            raise self._refused(error) from None
        try:
            self._extend(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Let go of the server; the next search connects again."""
        if self._connection is not None:
            self._closing()
            self._connection = None

    def _refused(self, error: Exception) -> InputError:
        """Why there is no connection. libpq's words may quote the string: only kinds are told."""
        words = str(error).lower()
        who = ("the server refuses the user or the password", "check the connection string")
        silent = ("no server answers", "start it, or check host and port")
        unknown = ("the server's name is unknown", "check the host")
        kinds = {
            "password": who,
            "authentication": who,
            "does not exist": (
                "there is no such database or user on the server",
                "create it, or name another in the connection string",
            ),
            "refused": silent,
            "no such file": silent,
            "timeout": (f"no server answers within {_PATIENCE} s", "check host and port"),
            "resolve": unknown,
            "translate host": unknown,
        }
        problem, remedy = next(
            (said for word, said in kinds.items() if word in words),
            (
                "cannot connect",
                "write postgresql://host:port/database, with user and password before the host",
            ),
        )
        return InputError(problem, place=self._place, remedy=remedy)

    def _extend(self, connection: Any) -> None:
        """Make sure of the extension, and teach the connection its types."""
        psycopg = _packages()
        from pgvector.psycopg import register_vector

        there = connection.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'")
        if there.fetchone() is None:
            try:
                connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            except psycopg.errors.UniqueViolation:
                pass  # another process made it just now
            except psycopg.errors.InsufficientPrivilege:
                raise InputError(
                    "this user may not create the extension vector",
                    place=self._place,
                    remedy="have an administrator run CREATE EXTENSION vector",
                ) from None
            except (psycopg.errors.FeatureNotSupported, psycopg.errors.UndefinedFile):
                raise InputError(
                    "the extension vector is not installed on the server",
                    place=self._place,
                    remedy="install pgvector there",
                ) from None
        register_vector(connection)


def _packages() -> Any:
    """psycopg, where both it and pgvector are installed."""
    try:
        import pgvector  # noqa: F401
        import psycopg
    except ImportError as absent:
        package = "pgvector" if absent.name == "pgvector" else "psycopg"
        raise MissingExtra("a pgvector index", package, "pgvector") from None
    return psycopg
