from typing import Any

from numpy.typing import NDArray

ArrowPair = tuple[object, object]

class TrecParser:
    def __init__(self, columns: int, /) -> None: ...
    def feed(self, lines: bytes | bytearray | memoryview, /) -> bool: ...
    def absorb(self, following: TrecParser, /) -> None: ...
    def finish(self) -> tuple[ArrowPair, Any, ArrowPair, Any]: ...

def index(
    doc: object,
    start: NDArray[Any],
    slot_start: NDArray[Any],
    slots: NDArray[Any],
    first: int,
    last: int,
    /,
) -> int: ...
def lookup(
    doc: object,
    start: NDArray[Any],
    slot_start: NDArray[Any],
    slots: NDArray[Any],
    wanted: object,
    query: NDArray[Any],
    rows: NDArray[Any],
    first: int,
    last: int,
    /,
) -> None: ...
def place(
    score: NDArray[Any],
    start: NDArray[Any],
    doc: object | None,
    direction: int,
    position: NDArray[Any],
    first: int,
    last: int,
    /,
) -> None: ...
def group(codes: NDArray[Any], start: NDArray[Any], rows: NDArray[Any], /) -> None: ...
def first_unfit(ids: object, /) -> int: ...
