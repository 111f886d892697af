"""Runs larger than memory, on one machine: the same figures to the last bit.

    memory.py     how much memory there is, and how much a run would take
    shards.py     files of every format, read a chunk at a time
    rows.py       rows of a run, whatever file they come from
    parts.py      whole queries → figures, and the figures of all parts as one Evaluation
    spill.py      a folder on disk that goes away with the process
    evaluate.py   by ranges of queries where the rows of each stand together, else by hash

A query's figures depend on its own rows and on the judgements alone, so that a run may be evaluated
in parts that hold whole queries. Means are correctly rounded sums and do not depend on the parts.
"""

from __future__ import annotations

from rankproof.evaluation.streaming.evaluate import evaluate_file, evaluate_stream, streams

__all__ = ["evaluate_file", "evaluate_stream", "streams"]
