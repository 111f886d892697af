"""Evaluate runs larger than memory on one machine, with the same values to the last bit.

A run is read in chunks of rows. If the rows of each query are adjacent, every query is evaluated
as soon as it is complete and nothing is written; otherwise rows are spilled to disk by a hash of
their query and read back a part at a time. Runs in clusters are in `rankproof.cluster`.

    evaluate.py   whole, in chunks or by hash: the choice, and each of them
    merging.py    evaluations of parts → the Evaluation of the whole run
    shards.py     files of every format, read a chunk of rows at a time
    rows.py       rows of a run, whatever file they come from
    spill.py      a folder on disk that is removed with the process
"""

from __future__ import annotations

from rankproof.evaluation.streaming.evaluate import evaluate_file, evaluate_stream, needs_parts

__all__ = ["evaluate_file", "evaluate_stream", "needs_parts"]
