from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

class Strings:
    def __len__(self) -> int: ...
    def __getitem__(self, row: int, /) -> str: ...
    def __iter__(self) -> Iterator[str]: ...
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...
    def gather(self, rows: NDArray[Any], /) -> Strings: ...
    def like(self, count: int, /) -> Strings: ...

class TrecParser:
    def __init__(self, columns: int, readers: int = 1, pieces: int = 0, /) -> None: ...
    def feed(
        self, lines: bytes | bytearray | memoryview, number: int = -1, reader: int = 0, /
    ) -> bool: ...
    def stop(self) -> None: ...
    def finish(self) -> tuple[Strings, Any, Strings, Any]: ...

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
    begins: NDArray[Any],
    first: int,
    last: int,
    /,
) -> None: ...
def falls(
    score: NDArray[Any],
    start: NDArray[Any],
    begins: NDArray[Any],
    first: int,
    last: int,
    /,
) -> int: ...
def ranked(
    at: NDArray[Any],
    start: NDArray[Any],
    group: NDArray[Any],
    group_start: NDArray[Any],
    rows: NDArray[Any],
    groups: NDArray[Any],
    first: int,
    last: int,
    /,
) -> None: ...
def group(codes: NDArray[Any], start: NDArray[Any], rows: NDArray[Any] | None, /) -> None: ...
def scatter(
    codes: NDArray[Any],
    begin: NDArray[Any],
    end: NDArray[Any],
    value: NDArray[Any],
    doc: Strings,
    to: NDArray[Any],
    into: Strings,
    first: int,
    last: int,
    /,
) -> None: ...
def first_unfit(ids: object, /) -> int: ...
def precision(
    grade: NDArray[Any],
    rank: NDArray[Any],
    begin: NDArray[Any],
    rel: int,
    cut: NDArray[Any],
    relevant: NDArray[Any],
    extra: NDArray[Any],
    highest: bool,
    value: NDArray[Any],
    first: int,
    last: int,
    /,
) -> None: ...
def gain(
    delta: NDArray[Any],
    begin: NDArray[Any],
    known: NDArray[Any],
    held: NDArray[Any],
    step: NDArray[Any],
    total: NDArray[Any],
    lead: NDArray[Any],
    value: NDArray[Any],
    first: int,
    last: int,
    /,
) -> None: ...
def settle(
    run: dict[Any, Any], qrels: dict[Any, Any], narrow: int, by_id: int, /
) -> tuple[Any, ...] | None: ...
def nest(rows: list[Any], query: int, doc: int, value: int, /) -> dict[Any, dict[Any, Any]]: ...
def rows(
    queries: list[Any], template: dict[str, float], names: list[str], table: NDArray[Any], /
) -> dict[Any, dict[str, float]]: ...
def precisions(
    query: NDArray[Any],
    rank: NDArray[Any],
    grade: NDArray[Any],
    rel: int,
    cut: NDArray[Any],
    total: NDArray[Any],
    /,
) -> None: ...
def discounted(
    query: NDArray[Any],
    rank: NDArray[Any],
    gain: NDArray[Any],
    discount: NDArray[Any],
    cut: NDArray[Any],
    total: NDArray[Any],
    /,
) -> None: ...
def ideal(
    start: NDArray[Any],
    grade: NDArray[Any],
    worth: NDArray[Any],
    discount: NDArray[Any],
    cut: int,
    total: NDArray[Any],
    /,
) -> None: ...
