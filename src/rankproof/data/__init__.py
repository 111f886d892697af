"""Whatever people hold → Run and Qrels. The only input validation there is.

read.py       read_run, read_qrels: a path, `-`, a dict of dicts, a frame or rows
sources.py    a file: what its name says, and its bytes decompressed
formats.py    which format a file is written in; a format of one's own
trec.py       TREC runs and qrels, compiled and in polars
frames.py     polars, pandas, pyarrow; CSV, TSV, Parquet, Arrow
plain.py      three columns: MS MARCO's ranks, scores, grades
peers.py      what ranx, Hugging Face, trectools and ir_datasets hold
hits.py       what a retriever returned for a query
objects.py    dicts and rows; JSON, JSON lines
beir.py       folders of passages and questions
columns.py    what each of these hands to read.py
"""

from __future__ import annotations

from rankproof.data.formats import FORMATS, register
from rankproof.data.read import QrelsLike, RunLike, read_qrels, read_run
from rankproof.data.sources import Format

__all__ = ["FORMATS", "Format", "QrelsLike", "RunLike", "read_qrels", "read_run", "register"]
