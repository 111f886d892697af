"""`verify`: whether a result is what its inputs give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from rankproof.commands.registry import Source, command

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from rankproof.commands.verification import Verification


@command(group="Tools", replay="it holds none that follows from its inputs alone")
def verify(
    result: Annotated[
        str | os.PathLike[str],
        Source("RESULT", "result"),
        "A file of --out or --format json.",
    ],
    inputs: Annotated[
        Sequence[str | Path],
        Source("INPUT...", "input", is_named=False, digested=False),
        "Its inputs, or folders that hold them, where they are neither beside it nor in this "
        "folder.",
    ] = (),
) -> Verification:
    """Digest the inputs of a result again, make it again, and compare every value.

    Exits with 1 where an input is another file than the one that was read, or a value differs in
    its last bit. Where a model was run, a judge asked or time measured, the inputs alone are
    checked, and it says so.

    $ rankproof verify result.json qrels.txt a.trec b.trec

    >>> inputs = ["try/qrels.txt", "try/plain.trec", "try/saturated.trec"]
    >>> rp.verify("try/results/comparison.json", inputs).differences
    ()
    """
    from rankproof.commands.verification import verify_result

    return verify_result(result, inputs)
