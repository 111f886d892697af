"""The store of a golden set: what is in it stays in it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from rankproof.foundation.database import connect, write_ahead
from rankproof.foundation.errors import InputError
from rankproof.foundation.locks import lock_owner
from rankproof.golden.judgments import Reply
from rankproof.golden.store import ConcurrentChange, Store, open_if_built

REPLY = Reply(
    *("r0", "c0", "grade", "q1", ("d1", "d2"), 1, 0, "p", "m", {"temperature": 0}),
    *('{"A": 5, "B": 1}', {"d1": 5, "d2": 1}, None, 70, 9, True, 0.25, 0.5, 1),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "set.golden"


def filled(path: Path) -> Store:
    store = Store(path, create=True)
    with store.transaction():
        store.replace("pool", [("q1", f"d{n}", n, 1 / n) for n in range(1, 5)])
        store.replace("grades", [("q1", f"d{n}", 5 - n, None, 1) for n in range(1, 4)])
        store.replace("ranking", [("q1", f"d{n}", n, -n, 1, 1, 4, 0.5) for n in range(1, 4)])
    return store


def test_a_reply_is_read_as_it_was_stored(path: Path) -> None:
    with Store(path, create=True) as store:
        number = store.add_reply(REPLY)
    with Store(path) as store:
        assert store.reply("r0") == replace(REPLY, id=number)
        assert store.reply("other") is None
        assert store.total_cost() == 0.25


def test_a_request_is_answered_once(path: Path) -> None:
    with Store(path, create=True) as store:
        store.add_reply(REPLY)
        with pytest.raises(sqlite3.IntegrityError):
            store.add_reply(REPLY)


def test_a_row_is_a_result_or_a_failure_and_never_both_or_neither(path: Path) -> None:
    with Store(path, create=True) as store:
        for wrong in (replace(REPLY, failure="no"), replace(REPLY, result=None)):
            with pytest.raises(sqlite3.IntegrityError):
                store.add_reply(wrong)
        store.add_reply(replace(REPLY, result=None, failure="empty"))


def test_two_megabytes_and_lone_surrogates_are_kept_within_reason(path: Path) -> None:
    with Store(path, create=True) as store:
        store.add_reply(replace(REPLY, text="\ud800" + "x" * 2_000_000))
        kept = store.replies()[0].text
        assert kept == "?" + "x" * 100_000  # a character too long, as it was


def test_a_reply_is_there_for_others_before_the_store_is_closed(path: Path) -> None:
    with Store(path, create=True) as store:
        store.add_reply(REPLY)
        with Store(path) as reader:
            assert len(reader.replies()) == 1


def test_what_a_writer_closed_is_in_the_file_while_others_read(path: Path, tmp_path: Path) -> None:
    """A viewer is open for hours: meanwhile the file is copied, digested and sent."""
    filled(path).close()
    with Store(path) as reader:
        assert reader.corrections() == []
        with Store(path, write=True) as store:
            store.add_correction("q1", "d1", "grade", 2, who="ada")
        shutil.copyfile(path, tmp_path / "copy.golden")
        with Store(tmp_path / "copy.golden") as copy:
            assert copy.corrections() == reader.corrections() != []


def test_threads_may_share_a_store(path: Path) -> None:
    with Store(path, create=True) as store:

        def work(of: int) -> None:
            for n in range(20):
                store.add_reply(replace(REPLY, request=f"{of}-{n}"))

        threads = [threading.Thread(target=work, args=(of,)) for of in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(store.replies()) == 160


def test_failed_requests_can_be_asked_again_and_stay_on_record(path: Path) -> None:
    failed = replace(REPLY, request="r1", documents=("d3",), result=None, failure="empty")
    failed = replace(failed, pairs=("p3",))
    with Store(path, create=True) as store:
        store.add_reply(replace(REPLY, request="first", result=None, failure="prose"))
        store.add_reply(replace(REPLY, attempt=2))  # the second asking went well
        store.add_reply(failed)
        store.add_reply(replace(failed, request="r2", attempt=2))
        assert store.retire_failed() == 1
        assert store.reply("first") is not None
        assert (store.reply("r1"), store.reply("r2")) == (None, None)
        store.add_reply(replace(failed, result={"d3": 2}, failure=None))
        found = store.reply("r1")
        assert found is not None
        assert found.result == {"d3": 2}
        assert len(store.replies("1")) == 5


def test_a_second_writer_is_refused_and_told_who_the_first_is(path: Path) -> None:
    with Store(path, create=True):
        found = lock_owner(path)
        assert found is not None
        assert found.pid == os.getpid()
        with pytest.raises(InputError, match=rf"in use by process {os.getpid()} on .*, since 2"):
            Store(path, write=True)
        with Store(path) as reader:  # reading is free
            assert reader.meta("made")
    assert lock_owner(path) is None
    with Store(path, write=True) as store:
        assert store.rows("SELECT 1") == [(1,)]
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name]


def test_a_killed_process_leaves_its_rows_and_no_lock(path: Path) -> None:
    code = f"""
import sys
from dataclasses import replace
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_golden_store import REPLY, Store
store = Store({str(path)!r}, create=True)
for n in range(50):
    store.add_reply(replace(REPLY, request=str(n)))
print("ready", flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == b"ready\n"
    with pytest.raises(InputError, match=f"in use by process {process.pid}"):
        Store(path, write=True)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    process.stdin.close()
    with Store(path, write=True) as store:
        assert len(store.replies()) == 50


def test_a_file_that_is_not_a_golden_set_is_refused_in_one_line(path: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such golden set; make one"):
        Store(path)
    path.write_bytes(b"query 0 doc 1\n" * 100)
    with pytest.raises(InputError, match="this is not a golden set"):
        Store(path, create=True)
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as database, database:
        database.execute("CREATE TABLE t (x)")
    database.close()
    with pytest.raises(InputError, match="this is not a golden set"):
        Store(other)
    assert not list(tmp_path.glob("*.lock"))
    with pytest.raises(InputError, match="this is not a golden set"):
        Store(tmp_path)


def test_a_store_of_a_newer_version_is_one_line(path: Path) -> None:
    Store(path, create=True).close()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(InputError, match=r"newer rankproof \(its format is 99, .* reads 3\)"):
        Store(path)


def test_a_full_disk_is_one_line_and_nothing_is_lost(path: Path) -> None:
    with Store(path, create=True) as store:
        store.add_reply(REPLY)
        store.execute("PRAGMA max_page_count = 40")
        kept = [REPLY.request]

        def fill() -> None:
            for n in range(1000):
                store.add_reply(replace(REPLY, request=str(n), text="x" * 5000))
                kept.append(str(n))

        with pytest.raises(InputError, match="the disk is full; make room and run again"):
            fill()
        with pytest.raises(InputError, match="the disk is full"), store.transaction():
            store.replace("passages", [(str(n), "x" * 5000, None) for n in range(1000)])
    with Store(path) as store:
        assert [reply.request for reply in store.replies()] == kept
        assert len(kept) > 5
        assert store.rows("SELECT COUNT(*) FROM passages") == [(0,)]


def test_a_set_whose_making_was_stopped_at_once_is_not_built(path: Path) -> None:
    with closing(connect(path)) as connection:
        write_ahead(connection, "NORMAL")
    assert path.stat().st_size > 0
    with open_if_built(path) as store:
        assert store is None
    with filled(path), open_if_built(path) as store:
        assert store is not None
        assert len(store.rows("SELECT * FROM grades")) == 3


def test_a_block_is_written_whole_or_not_at_all(path: Path) -> None:
    with filled(path) as store:

        def half() -> None:
            with store.transaction():
                store.replace("pool", [])
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            half()
        assert store.rows("SELECT COUNT(*) FROM pool") == [(4,)]


def test_corrections_are_rows_and_overwrite_nothing(path: Path) -> None:
    with filled(path) as store:
        first = store.add_correction("q1", "d1", "grade", 2, who="ada")
        second = store.add_correction("q1", "d1", "grade", 3, who="bob", note="on reflection")
        rows = store.corrections()
        assert [(c.id, c.old, c.new, c.who) for c in rows] == [
            (first, 4, 2, "ada"),
            (second, 4, 3, "bob"),  # what others say is nothing to bob
        ]
        assert store.rows("SELECT grade FROM grades WHERE doc = 'd1'") == [(4,)]
        assert [c.new for c in store.active_corrections()] == [2, 3]


def test_an_undo_is_a_row_of_ones_own_and_can_be_undone(path: Path) -> None:
    with filled(path) as store:
        first = store.add_correction("q1", "d1", "grade", 2, who="ada")
        with pytest.raises(InputError, match="correction 1 was made by 'ada'"):
            store.undo(first, who="bob")
        undo = store.undo(first, who="ada")
        assert store.active_corrections() == []
        assert [(c.old, c.new, c.undoes) for c in store.corrections()][1] == (2, 4, first)
        with pytest.raises(InputError, match="undone already"):
            store.undo(first, who="ada")
        store.undo(undo, who="ada")
        assert [c.id for c in store.active_corrections()] == [first]
        assert [(c.old, c.new, c.undoes) for c in store.corrections()][2] == (4, 2, undo)


def test_a_concurrent_correction_is_not_overwritten(path: Path) -> None:
    with filled(path) as store:
        first = store.add_correction("q1", "d1", "grade", 2, who="ada", seen=0)
        with pytest.raises(ConcurrentChange, match=r"changed elsewhere meanwhile \(ada, .*: 2\)"):
            store.add_correction("q1", "d1", "grade", 5, who="ada", seen=0)
        store.add_correction(
            "q1", "d1", "grade", 5, who="bob", seen=0
        )  # another person's is another
        store.add_correction("q1", "d1", "grade", 3, who="ada", seen=first)
        store.add_correction("q1", "d1", "rank", 2, who="ada", above=["d3"], below=["d2"], seen=0)
        with pytest.raises(ConcurrentChange):
            store.add_correction("q1", "d2", "rank", 1, who="ada", above=["d1"], seen=0)
        store.add_correction("q1", "d1", "grade", 4, who="carol", settles=True, seen=0)
        with pytest.raises(ConcurrentChange, match="carol"):  # two who settle settle one thing
            store.add_correction("q1", "d1", "grade", 1, who="dan", settles=True, seen=0)
        assert len(store.corrections()) == 5


def test_the_last_rows_of_a_killed_writer_are_read_in_a_read_only_folder(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "left.golden"
    with filled(path) as store:
        store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        store.add_correction("q1", "d1", "grade", 2, who="ada")  # in the log alone
        for end in ("", "-wal", "-shm"):  # what a kill leaves
            shutil.copy(f"{path}{end}", f"{left}{end}")
    monkeypatch.setattr(os, "access", lambda *given: False)
    with Store(left) as store:
        assert len(store.corrections()) == 1


def test_a_passage_without_a_grade_can_be_given_one(path: Path) -> None:
    with filled(path) as store:
        store.add_correction("q1", "d4", "grade", 5, who="ada")
        assert store.corrections()[0].old is None


@pytest.mark.parametrize(
    ("query", "doc", "field", "new", "problem"),
    [
        ("q1", "d1", "grade", 9, "grade 9"),
        ("q1", "d1", "grade", None, "grade None"),
        ("q1", "d9", "grade", 3, "is in no pool"),
        ("q9", "d1", "grade", 3, "is in no pool"),
        ("q1", "d1", "rank", 1, "above and below nothing"),
    ],
)
def test_a_correction_of_what_is_not_there_is_refused(
    path: Path, query: str, doc: str, field: str, new: int, problem: str
) -> None:
    with filled(path) as store:
        with pytest.raises(InputError, match=problem):
            store.add_correction(query, doc, field, new, who="ada")  # type: ignore[arg-type]
        with pytest.raises(InputError, match="nobody is named"):
            store.add_correction("q1", "d1", "grade", 3, who=" ")
        with pytest.raises(InputError, match="there is no correction 7"):
            store.undo(7, who="ada")
        assert store.corrections() == []


def test_meta_holds_json(path: Path) -> None:
    value = {"é": [1, None, "x"]}
    with Store(path, create=True) as store:
        store.set_meta("k", value)
        store.set_meta("k", value)
        assert store.meta("k") == value
        assert store.meta("absent", 3) == 3
        assert json.loads(store.rows("SELECT value FROM meta WHERE key='k'")[0][0]) == value


def test_a_file_that_is_not_a_store_is_closed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "other.golden"
    file.write_bytes(b"no database, but longer than the header of one is: " * 40)
    made: list[sqlite3.Connection] = []

    def connected(*given: object) -> sqlite3.Connection:
        made.append(sqlite3.connect(file))
        return made[-1]

    monkeypatch.setattr("rankproof.golden.store.connect", connected)
    with pytest.raises(InputError):
        Store(file)
    assert made
    for each in made:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            each.execute("SELECT 1")
