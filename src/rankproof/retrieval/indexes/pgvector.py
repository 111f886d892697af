"""PostgreSQL index (pgvector): compares every passage, or searches an HNSW graph.

A table is named by a digest of its vectors and settings and made in one transaction. A table that
exists is therefore complete, so that sweeps can share a server. The connection string stays in the
environment. It contains a password, so no message of libpq about it is passed on.
"""

from __future__ import annotations

import json
import os
import re
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import unquote, urlsplit

import numpy as np
import polars as pl
from pydantic import Field

from rankproof.foundation.arrays import Array
from rankproof.foundation.config import Count, Settings, read_secret
from rankproof.foundation.errors import InputError, MissingExtra
from rankproof.retrieval.components import is_local_host, part
from rankproof.retrieval.identity import contents_digest
from rankproof.retrieval.protocols import Retrieved, Vectors
from rankproof.retrieval.ranked_lists import check_queries, run_from_rows, time_each

_KIND = "rankproof pgvector 1"
_CONNECT_TIMEOUT = 10  # seconds
_TYPES = {"float32": "vector", "float16": "halfvec", "bit": "bit"}
_OPERATORS = {"float32": "<#>", "float16": "<#>", "bit": "<~>"}
_OPERATOR_CLASSES = {
    "float32": "vector_ip_ops",
    "float16": "halfvec_ip_ops",
    "bit": "bit_hamming_ops",
}
_MAX_DIMENSIONS = {"float32": 2000, "float16": 4000, "bit": 64000}  # of an HNSW index
_MAX_HITS = 1000  # that one HNSW scan returns


# Words in libpq's message, the problem, the remedy.
_CONNECTION_PROBLEMS = (
    (
        ("password", "authentication"),
        "the server refuses the user or the password",
        "check the connection string",
    ),
    (
        ("does not exist",),
        "there is no such database or user on the server",
        "create it, or name another in the connection string",
    ),
    (
        ("refused", "no such file"),
        "no server answers",
        "start it, or check host and port",
    ),
    (
        ("timeout",),
        f"no server answers within {_CONNECT_TIMEOUT} s",
        "check host and port",
    ),
    (
        ("resolve", "translate host"),
        "the server's name is unknown",
        "check the host",
    ),
)


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
        """True unless the server is on this machine (a socket, or its own address)."""
        dsn = os.environ.get(self.dsn_env, "")
        host_setting = re.search(r"\bhost\s*=\s*'?([^\s']*)", dsn)
        try:
            host = urlsplit(dsn).hostname or ""
        except ValueError:  # not an address, which connecting reports
            host = "?"
        return not is_local_host(host_setting[1] if host_setting else unquote(host))


@part("index", "pgvector", extra="pgvector", imports=("psycopg", "pgvector"), network=True)
class PgvectorIndex:
    """A table with the column `code` in the searched format, and `original` if it rescores."""

    def __init__(
        self,
        settings: PgvectorSettings,
        vectors: Vectors,
        document_ids: pl.Series,
    ):
        _packages()
        self.settings = settings
        self.document_ids = document_ids
        self.dimensions = vectors.shape[1]
        limit = _MAX_DIMENSIONS[settings.format]
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
            self.build_seconds = self._make_table(connection, vectors)
            size = connection.execute("SELECT pg_total_relation_size(%s::regclass)", [self.table])
            self.bytes: int = int(size.fetchone()[0])

    @property
    def name(self) -> str:
        return f"pgvector {self.settings.method} {self.settings.format}"

    @property
    def _place(self) -> str:
        return f"PostgreSQL (${self.settings.dsn_env})"

    def search(self, queries: Vectors, k: int, query_ids: Sequence[str] | None = None) -> Retrieved:
        """Search one query after the other, each timed by itself, the network included.

        When every passage is compared, the first of equal scores are kept and `Run.cut` counts the
        others, at the step in which the format selects. With HNSW they are unknown.
        """
        check_queries(queries, k, self.dimensions)
        count = max(k, (self.settings.candidates or 0) if self._rescores else 0)
        count = min(count, len(self.document_ids))
        is_hnsw = self.settings.method == "hnsw"
        if is_hnsw and count > _MAX_HITS:
            raise InputError(
                f"{count} passages of one query; pgvector's HNSW returns at most {_MAX_HITS}",
                place=self._place,
                remedy="ask for fewer, or use method flat",
            )
        query = self._query(count)
        with self._connect() as connection:
            if is_hnsw:
                width = min(_MAX_HITS, max(self.settings.ef_search, count))
                connection.execute(f"SET hnsw.ef_search = {width}")
                # The planner would read all of a small table instead of the index.
                connection.execute("SET enable_seqscan = off")

            def search_one(vector: Array) -> tuple[Array, Array, int]:
                parameters = {"code": self._code(vector), "original": vector}
                rows = connection.execute(query, parameters, prepare=True).fetchall()
                return self._best(np.array(rows, np.float64), count, k)

            best, seconds = time_each(np.ascontiguousarray(queries, np.float32), search_one)
        lists = [(rows, scores) for rows, scores, _ in best]
        cut = None if is_hnsw else np.array([ties for *_, ties in best], np.int64)
        run = run_from_rows(self.name, query_ids, self.document_ids, lists, "float32", cut)
        return Retrieved(run, seconds)

    def drop(self) -> None:
        """Remove the table from the server."""
        with self._connect() as connection:
            connection.execute(f"DROP TABLE IF EXISTS {self.table}")

    def _query(self, count: int) -> str:
        """Return SQL for (row, distance in the format[, minus inner product of the original])."""
        operator = _OPERATORS[self.settings.format]
        distance = f"code {operator} %(code)s"
        rescored = ", original <#> %(original)s" if self._rescores else ""
        # Only ORDER BY … LIMIT uses the HNSW index, which cannot return ties.
        limit = f"LIMIT {count}"
        if self.settings.method == "flat":
            limit = f"FETCH FIRST {count} ROWS WITH TIES"
        return f"SELECT row, {distance}{rescored} FROM {self.table} ORDER BY {distance} {limit}"

    def _best(self, matches: Array, count: int, k: int) -> tuple[Array, Array, int]:
        """Return rows and scores of the k best, and how many others tie with the last selected.

        `matches` has the columns of `_query`, with all rows that tie at the `count`-th.
        """
        if not len(matches):
            return np.empty(0, np.int64), np.empty(0, np.float64), 0
        selected = matches[np.lexsort((matches[:, 0], matches[:, 1]))][:count]
        if self._rescores:
            ties = len(matches) - len(selected)
            selected = selected[np.lexsort((selected[:, 0], selected[:, 2]))][:k]
        else:
            selected = selected[:k]
            last = selected[-1, 1]
            ties = int((matches[:, 1] == last).sum() - (selected[:, 1] == last).sum())
        scores = -selected[:, -1] + 0.0  # no minus zero
        return selected[:, 0].astype(np.int64), scores, ties

    def _code(self, vector: Array) -> Any:
        """Return a vector as the column `code` stores it."""
        from pgvector import Bit, HalfVector

        if self.settings.format == "bit":
            return Bit(vector > 0)
        return HalfVector(vector) if self.settings.format == "float16" else vector

    def _digest(self, vectors: Vectors) -> str:
        """Return a digest of all that decides the table's contents, which ef_search does not."""
        stored = self.settings.model_dump(include={"method", "format"})
        if self.settings.method == "hnsw":
            stored |= self.settings.model_dump(include={"m", "ef_construction"})
        stored["original"] = self._rescores
        return contents_digest([_KIND, stored, vectors.shape], vectors)[:24]

    def _make_table(self, connection: Any, vectors: Vectors) -> float:
        """Make the table unless it exists; return the build time, which its comment keeps."""
        with connection.transaction():
            # A second process waits here and then sees the table.
            lock = int(self.table[-15:], 16)
            connection.execute("SELECT pg_advisory_xact_lock(%s)", [lock])
            (comment,) = connection.execute(
                "SELECT obj_description(to_regclass(%s)::oid, 'pg_class')", [self.table]
            ).fetchone()
            if comment is not None:
                return float(json.loads(comment)["build_seconds"])
            start = time.perf_counter()
            self._copy_rows(connection, vectors)
            if self.settings.method == "hnsw":
                connection.execute(
                    f"CREATE INDEX ON {self.table} "
                    f"USING hnsw (code {_OPERATOR_CLASSES[self.settings.format]}) "
                    f"WITH (m = {self.settings.m}, "
                    f"ef_construction = {self.settings.ef_construction})"
                )
            seconds = time.perf_counter() - start
            comment = json.dumps({"kind": _KIND, "build_seconds": seconds})
            connection.execute(f"COMMENT ON TABLE {self.table} IS '{comment}'")
        connection.execute(f"ANALYZE {self.table}")
        return seconds

    def _copy_rows(self, connection: Any, vectors: Vectors) -> None:
        """Create the table and copy all rows into it."""
        code_type = _TYPES[self.settings.format]
        original = f", original vector({self.dimensions})" if self._rescores else ""
        connection.execute(
            f"CREATE TABLE {self.table} "
            f"(row integer PRIMARY KEY, code {code_type}({self.dimensions}) NOT NULL{original})"
        )
        columns, types = "row, code", ["int4", code_type]
        if self._rescores:
            columns, types = "row, code, original", [*types, "vector"]
        with connection.cursor().copy(
            f"COPY {self.table} ({columns}) FROM STDIN WITH (FORMAT BINARY)"
        ) as copy:
            copy.set_types(types)
            for row, vector in enumerate(np.ascontiguousarray(vectors, np.float32)):
                code = self._code(vector)
                copy.write_row((row, code, vector) if self._rescores else (row, code))

    @contextmanager
    def _connect(self) -> Iterator[Any]:
        """Yield the connection, which stays open between searches as in a service.

        Errors become one line without the password.
        """
        psycopg = _packages()
        try:
            if not self._is_alive():
                self._connection = self._open()
                self._closing = weakref.finalize(self, self._connection.close)
            yield self._connection
        except psycopg.Error as error:
            self.close()
            message = error.diag.message_primary  # by the server, which never sees the string
            problem = f"the server says: {message}" if message else "the connection was lost"
            raise InputError(
                problem, place=self._place, remedy="see the server's log, and run again"
            ) from None
        except BaseException:
            self.close()  # its last command may be unfinished
            raise

    def _is_alive(self) -> bool:
        """True if there is a connection, and the server has not closed it."""
        if self._connection is None:
            return False
        try:
            self._connection.execute("SELECT 1")
        except _packages().Error:
            self.close()
            return False
        return True

    def _open(self) -> Any:
        """Open a connection that knows the types of pgvector."""
        psycopg = _packages()
        dsn = read_secret(self.settings.dsn_env, "PostgreSQL")
        try:
            connection = psycopg.connect(dsn, connect_timeout=_CONNECT_TIMEOUT, autocommit=True)
        except (psycopg.Error, UnicodeError) as error:
            raise self._connection_error(error) from None
        try:
            self._add_extension(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Close the connection; the next search opens another."""
        if self._connection is not None:
            self._closing()
            self._connection = None

    def _connection_error(self, error: Exception) -> InputError:
        """Return why there is no connection, without libpq's message: it may be the string."""
        message = str(error).lower()
        for words, problem, remedy in _CONNECTION_PROBLEMS:
            if any(word in message for word in words):
                return InputError(problem, place=self._place, remedy=remedy)
        return InputError(
            "cannot connect",
            place=self._place,
            remedy="write postgresql://host:port/database, with user and password before the host",
        )

    def _add_extension(self, connection: Any) -> None:
        """Create the extension if it is missing, and register its types with the connection."""
        psycopg = _packages()
        from pgvector.psycopg import register_vector

        extension = connection.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'")
        if extension.fetchone() is None:
            try:
                connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            except psycopg.errors.UniqueViolation:
                pass  # another process created it meanwhile
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
    """Return psycopg, if both it and pgvector are installed."""
    try:
        import pgvector  # noqa: F401
        import psycopg
    except ImportError as absent:
        package = "pgvector" if absent.name == "pgvector" else "psycopg"
        raise MissingExtra("a pgvector index", package, "pgvector") from None
    return psycopg
