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
    def fetch(
        self,
        fd: int,
        begin: int,
        end: int,
        bom: int,
        step: int,
        longest: int,
        reader: int,
        most: int,
        /,
    ) -> int: ...
    def stop(self) -> None: ...
    def finish(self) -> tuple[Strings, Any, Strings, Any]: ...
    def plain(self) -> bool: ...

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
    groups: NDArray[Any],
    first: int,
    last: int,
    /,
) -> int: ...
def falls(
    score: NDArray[Any], start: NDArray[Any], groups: NDArray[Any], first: int, last: int, /
) -> int: ...
def grouped(
    row: NDArray[Any],
    grade: NDArray[Any],
    start: NDArray[Any],
    lists: NDArray[Any],
    group: NDArray[Any],
    list_start: NDArray[Any],
    position: NDArray[Any] | None,
    group_start: NDArray[Any],
    size: NDArray[Any],
    begin: NDArray[Any],
    query: NDArray[Any],
    judged: NDArray[Any],
    grades: NDArray[Any],
    rank: NDArray[Any],
    first: int,
    last: int,
    /,
) -> tuple[int, int] | None: ...
def chosen(
    chosen: NDArray[Any],
    size: NDArray[Any],
    begin: NDArray[Any],
    query: NDArray[Any],
    start: NDArray[Any],
    grade: NDArray[Any],
    rank: NDArray[Any],
    /,
    *into: NDArray[Any],
) -> tuple[int, int]: ...
def counted(
    chosen: NDArray[Any],
    cut: NDArray[Any],
    size: NDArray[Any],
    begin: NDArray[Any],
    query: NDArray[Any],
    start: NDArray[Any],
    rank: NDArray[Any],
    /,
    *sums: NDArray[Any],
) -> None: ...
def averages(
    grade: NDArray[Any],
    cut: NDArray[Any],
    size: NDArray[Any],
    begin: NDArray[Any],
    query: NDArray[Any],
    start: NDArray[Any],
    rank: NDArray[Any],
    rel: int,
    /,
    *sums: NDArray[Any],
) -> None: ...
def starts(codes: NDArray[Any], start: NDArray[Any], /) -> bool: ...
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
    reach: NDArray[Any],
    gaps: bool,
    rel: int,
    sums: NDArray[Any],
    cut: NDArray[Any],
    relevant: NDArray[Any],
    extra: NDArray[Any],
    highest: bool,
    value: NDArray[Any],
    first: int,
    last: int,
    /,
) -> None: ...
def cascade(
    stop: NDArray[Any],
    rank: NDArray[Any],
    begin: NDArray[Any],
    reach: NDArray[Any],
    gap: float,
    cut: NDArray[Any],
    value: NDArray[Any],
    first: int,
    last: int,
    /,
) -> None: ...
def preference(
    grade: NDArray[Any],
    rank: NDArray[Any],
    begin: NDArray[Any],
    reach: NDArray[Any],
    gaps: bool,
    rel: int,
    relevant: NDArray[Any],
    others: NDArray[Any],
    extra: NDArray[Any],
    possible: bool,
    highest: bool,
    value: NDArray[Any],
    first: int,
    last: int,
    /,
) -> None: ...
def interpolated(
    grade: NDArray[Any],
    rank: NDArray[Any],
    begin: NDArray[Any],
    reach: NDArray[Any],
    gaps: bool,
    rel: int,
    levels: NDArray[Any],
    relevant: NDArray[Any],
    extra: NDArray[Any],
    highest: bool,
    value: NDArray[Any],
    first: int,
    last: int,
    /,
) -> None: ...
def share(
    doc_a: object,
    row_a: NDArray[Any] | None,
    known_a: NDArray[Any],
    begin_a: NDArray[Any],
    start_a: NDArray[Any],
    list_b: NDArray[Any],
    doc_b: object,
    lists_b: NDArray[Any],
    slot_start: NDArray[Any],
    slots: NDArray[Any],
    place_b: NDArray[Any] | None,
    known_b: NDArray[Any],
    begin_b: NDArray[Any],
    start_b: NDArray[Any],
    theirs: NDArray[Any],
    own: NDArray[Any],
    shared: NDArray[Any],
    level: NDArray[Any],
    first: int,
    last: int,
    /,
) -> None: ...
def lead(
    theirs: NDArray[Any],
    own: NDArray[Any],
    start_a: NDArray[Any],
    start_b: NDArray[Any],
    weight: NDArray[Any],
    gained: NDArray[Any],
    lost: NDArray[Any],
    most: NDArray[Any],
    least: NDArray[Any],
    first: int,
    last: int,
    /,
) -> None: ...
def gain(
    delta: NDArray[Any],
    sign: float,
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
def gains(
    theirs: NDArray[Any],
    own: NDArray[Any],
    start_a: NDArray[Any],
    start_b: NDArray[Any],
    weight: NDArray[Any],
    known: NDArray[Any],
    held: NDArray[Any],
    step: NDArray[Any],
    total: NDArray[Any],
    high: NDArray[Any],
    low: NDArray[Any],
    first: int,
    last: int,
    /,
) -> None: ...
def sets(
    kinds: NDArray[Any],
    weight4: NDArray[Any],
    wide4: int,
    weight3: NDArray[Any],
    wide3: int,
    k: int,
    low: NDArray[Any],
    high: NDArray[Any],
    first: int,
    last: int,
    /,
) -> None: ...
def gain_in_rows(
    rank: NDArray[Any],
    begin: NDArray[Any],
    reach: NDArray[Any],
    sums: NDArray[Any],
    known: NDArray[Any],
    held: NDArray[Any],
    step: NDArray[Any],
    total: NDArray[Any],
    extra: NDArray[Any],
    highest: bool,
    value: NDArray[Any],
    first: int,
    last: int,
    /,
) -> None: ...

GRADES: int

def figures(
    listed: NDArray[Any],
    query: NDArray[Any],
    rank: NDArray[Any],
    grade: NDArray[Any],
    start: NDArray[Any],
    pooled: NDArray[Any],
    rel: int,
    which: NDArray[Any],
    at: NDArray[Any],
    table: NDArray[Any],
    /,
) -> None: ...
def settle(
    run: dict[Any, Any], qrels: dict[Any, Any], narrow: int, by_id: int, /
) -> tuple[Any, ...] | None: ...
def nest(rows: list[Any], query: int, doc: int, value: int, /) -> dict[Any, dict[Any, Any]]: ...
def rows(
    queries: list[Any], template: dict[str, float], names: list[str], table: NDArray[Any], /
) -> dict[Any, dict[str, float]]: ...
def tabulate(
    run: dict[Any, Any],
    qrels: dict[Any, Any],
    rel: int,
    which: NDArray[Any],
    at: NDArray[Any],
    template: dict[str, float],
    names: list[str],
    /,
) -> dict[Any, dict[str, float]] | None: ...
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
def tally(
    start: NDArray[Any], grade: NDArray[Any], low: int, high: int, count: NDArray[Any], /
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
