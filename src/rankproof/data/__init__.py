"""Read runs and judgments from whatever holds them: the only place that validates input.

read                       read_run, read_qrels: a path, `-`, a dict of dicts, a frame or rows
sources, formats           bytes of files and pipes, decompressed; in which format they are
trec, three_columns        lines: TREC runs and qrels, MS MARCO's ranks, scores, grades
frames, arrow              CSV, TSV, Parquet, Arrow; frames of polars, pandas, pyarrow
objects, hits              dicts, rows and JSON; what a retriever returned for a query
foreign_tables, beir       tables of ranx, Hugging Face, trectools, ir_datasets; BEIR folders
columns, tables, scales    the columns that readers return; Run and Qrels; what grades mean
ties                       scores to tie groups: the only place that ranks

It does not evaluate anything (measures, evaluation).
"""

from __future__ import annotations

from rankproof.data.formats import FORMATS, register
from rankproof.data.read import QrelsLike, RunLike, read_qrels, read_run
from rankproof.data.sources import Format

__all__ = ["FORMATS", "Format", "QrelsLike", "RunLike", "read_qrels", "read_run", "register"]
