"""The viewer's server: who is kept out, what the page is told, the command."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from loopback import PATIENCE
from rankproof_cli import rankproof
from viewed_sets import EVIL, PLAIN, QUESTIONS, build_set, corrections, serving

from rankproof.errors import InputError
from rankproof.golden.result import read_golden
from rankproof.golden.store import Store
from rankproof.viewer import reading
from rankproof.viewer.reading import Filter
from rankproof.viewer.server import listen


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_set(tmp_path_factory.mktemp("built"))


@pytest.fixture
def path(built: Path, tmp_path: Path) -> Path:
    """A copy to write to."""
    return Path(shutil.copy(built, tmp_path / "set.golden"))


def ask(
    url: str, path: str = "", method: str = "GET", body: Any = None, **headers: str | None
) -> tuple[int, bytes, dict[str, str]]:
    """A request as any program might send it; a header of None is left out."""
    place = urlsplit(url)
    assert place.port is not None
    connection = http.client.HTTPConnection("127.0.0.1", place.port, timeout=PATIENCE)
    connection.putrequest(method, place.path + path, skip_host=True)
    data = b"" if body is None else json.dumps(body).encode()
    given: dict[str, str | None] = {"Host": place.netloc, "Content-Length": str(len(data))}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    for name, value in given.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders(data)
    reply = connection.getresponse()
    text = reply.read()
    connection.close()
    return reply.status, text, {name.lower(): value for name, value in reply.getheaders()}


def test_without_the_token_everything_is_refused(path: Path) -> None:
    with serving(path) as url:
        place = urlsplit(url)
        root = f"http://{place.netloc}"
        token = place.path.strip("/")
        wrong = token[:-1] + ("A" if token[-1] != "A" else "B")
        for other in ("/", f"/{wrong}/", "/page.js", f"/{wrong}/api/set", f"/{token}", "/é/"):
            status, text, headers = ask(root, other.replace("é", "%C3%A9"))
            assert (status, b"golden" in text) == (403, False), other
            assert headers["content-security-policy"].startswith("default-src 'none'")
        for inside in ("", "page.css", "page.js", "api/set", "api/agreement", "api/sources"):
            assert ask(url, inside)[0] == 200, inside
        assert ask(url, "api/other")[0] == 404


def test_a_host_that_is_not_this_machine_is_refused(path: Path) -> None:
    with serving(path) as url:
        port = urlsplit(url).port
        for host in (f"localhost:{port}", f"127.0.0.1:{port}"):
            assert ask(url, "api/set", Host=host)[0] == 200
        for stranger in (f"evil.example:{port}", "127.0.0.1", f"127.0.0.1.evil.example:{port}", ""):
            assert ask(url, "api/set", Host=stranger)[0] == 403, stranger


def test_a_change_needs_the_token_in_a_header_and_json(path: Path) -> None:
    change = {"query": "q0", "doc": "d1", "field": "grade", "new": 5}
    with serving(path) as url:
        token = urlsplit(url).path.strip("/")
        kind = "application/json"
        send = partial(ask, url, "api/correct", "POST")
        assert send(change, Content_Type=kind)[0] == 403
        assert send(change, Content_Type=kind, X_Rankproof_Token="x")[0] == 403
        assert send(change, Content_Type="text/plain", X_Rankproof_Token=token)[0] == 409
        assert ask(url, "api/correct", X_Rankproof_Token=token)[0] == 405
        status, _, headers = ask(
            url, "api/correct", "OPTIONS", Origin="http://evil.example", X_Rankproof_Token=token
        )
        assert status == 405
        assert not [name for name in headers if name.startswith("access-control")]
        assert corrections(path) == []
        assert send(change, Content_Type=kind, X_Rankproof_Token=token)[0] == 200
        assert len(corrections(path)) == 1
        for bad in (
            {"query": "q0", "doc": "d1", "field": "grade", "new": 6},
            {"query": "q0", "doc": "d1", "field": "grade", "new": True},
            {"query": "q0", "doc": "nobody", "field": "grade", "new": 3},
            {"query": "q0", "doc": "d1", "field": "text", "new": 3},
            {"query": ["q0"], "doc": "d1", "field": "grade", "new": 3},
            {"query": "q0", "doc": "d1", "field": "rank", "new": 99},
            ["q0"],
            {"doc": "x" * 70_000},
            {"query": "\ud800", "doc": "d1", "field": "grade", "new": 3},
            {"query": "q0", "doc": "\udfff", "field": "grade", "new": 3},
        ):
            status, text, _ = send(bad, Content_Type=kind, X_Rankproof_Token=token)
            assert status == 409, bad
            assert json.loads(text)["error"]
        assert len(corrections(path)) == 1


def test_every_answer_carries_the_headers_that_keep_a_page_to_itself(path: Path) -> None:
    with serving(path) as url:
        for inside in ("", "page.js", "api/set", "api/none"):
            _, _, headers = ask(url, inside)
            policy = headers["content-security-policy"]
            assert "unsafe" not in policy
            assert "script-src 'self'" in policy
            assert "frame-ancestors 'none'" in policy
            assert headers["x-frame-options"] == "DENY"
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cache-control"] == "no-store"
            assert headers["referrer-policy"] == "no-referrer"
            assert "server" not in headers


def test_the_server_listens_to_this_machine_alone(path: Path) -> None:
    with listen(0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
        with pytest.raises(InputError, match="cannot be had"):
            listen(listener.getsockname()[1])


# --------------------------------------------------------------------------------- command line


def test_the_command_prints_the_address_and_ends_cleanly_by_ctrl_c(path: Path) -> None:
    process = subprocess.Popen(
        [
            *(sys.executable, "-W", "error", "-m", "rankproof", "golden", "view", str(path)),
            *("--no-open", "--as", "Grace Hopper"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    status, text, _ = ask(url, "api/set")
    assert (status, json.loads(text)["who"]) == (200, "Grace Hopper")
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, error) == (0, "", "rankproof: Ctrl-C ends it\n")


def test_what_cannot_be_viewed_is_said_in_one_line(tmp_path: Path, path: Path) -> None:
    empty = tmp_path / "empty.golden"
    Store(empty, create=True).close()
    done = rankproof("golden", "view", "--no-open", str(empty))
    assert done.returncode == 2
    assert done.stderr.decode() == (
        f"rankproof: {empty}: nothing is graded yet; "
        "run `rankproof golden build` until grading is done\n"
    )
    with pytest.raises(InputError, match="there is no such golden set"), serving(tmp_path / "no"):
        pass
    with pytest.raises(InputError, match="--as: nobody is named"), serving(path, who=" "):
        pass


def test_without_its_extra_the_viewer_says_what_to_install(path: Path) -> None:
    code = (
        "import sys; sys.modules['uvicorn'] = None; sys.argv[1:] = "
        f"['golden', 'view', {str(path)!r}]; from rankproof.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "rankproof: the viewer needs uvicorn: pip install 'rankproof[viewer]'\n"


# --------------------------------------------------------------------------------- what is told


def test_the_counts_of_the_list_are_those_of_the_golden_set(path: Path) -> None:
    with Store(path, write=True) as store:
        for doc in ("d1", "d2", "d3"):
            store.correct("q1", doc, "grade", 2, who="ada")
    with Store(path) as store:
        golden = read_golden(store)
        told = reading.summaries(store, Filter())
    assert [each["query"] for each in told] == list(QUESTIONS)
    for each, query in zip(told, golden.queries, strict=True):
        grades = [p.grade for p in query.passages]
        assert each["grades"] == [grades.count(grade) for grade in range(1, 6)]
        assert each["failed"] == grades.count(None)
        assert each["validated"] == sum(bool(p.corrections) for p in query.passages)
        assert each["passages"] == each["matches"] == len(query.passages)


def test_found_by_splits_the_pool_by_its_lists(path: Path) -> None:
    with Store(path, write=True) as store:
        rows = [("q0", "dense", doc, n + 1, 1.0) for n, doc in enumerate(("d1", "d2", "d3"))]
        for row in rows:
            store.execute("INSERT INTO retrieved VALUES (?, ?, ?, ?, ?)", row)
        store.execute("DELETE FROM retrieved WHERE query = 'q0' AND list = 'bm25' AND doc = 'd3'")
    with Store(path) as store:

        def found(name: str) -> set[str]:
            told = reading.question(store, "q0", Filter.of({"found": name}))
            return {p["doc"] for p in told["passages"] if p["matches"]}

        assert found("both") == {"d1", "d2"}
        assert found("dense") == {"d3"}
        assert found("bm25") == set(PLAIN | EVIL) - {"d1", "d2", "d3"}
        with pytest.raises(InputError, match="give one of dense, bm25, both"):
            Filter.of({"found": "luck"})
