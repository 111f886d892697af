"""Whatever people hold → Run and Qrels. The only input validation there is.

read_run, read_qrels    a path, `-`, a dict of dicts, a frame or an iterable of tuples
"""

from __future__ import annotations

from rankproof.records.read import FORMATS, QrelsLike, RunLike, read_qrels, read_run

__all__ = ["FORMATS", "QrelsLike", "RunLike", "read_qrels", "read_run"]
