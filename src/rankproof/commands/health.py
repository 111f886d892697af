"""What is installed, what each verb needs, and whether what the user named answers.

Nothing is asked over a network but a server that the user names: an endpoint or a Milvus by its
address, PostgreSQL by the environment variable that indexes read too.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import Any, ClassVar
from urllib.parse import urlsplit
from urllib.request import url2pathname

from rankproof.commands.registry import Needs, all_commands
from rankproof.foundation.errors import InputError, MissingExtra
from rankproof.foundation.redaction import redact, register_address, register_secret
from rankproof.foundation.version import __version__
from rankproof.presentation.display import Displayed
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Column, Table

POSTGRES = "RANKPROOF_POSTGRES"
_PATIENCE = 10.0  # seconds for a server to answer

_ASKING = ("pydantic", "yaml", "httpx2", "tenacity")


def command_needs() -> dict[str, Needs]:
    """What each command needs, by its first word; those that need nothing are left out."""
    return {c.name.split()[0]: c.needs for c in all_commands() if c.needs != Needs()}


_TITLES = {"system": "", "compiled": "compiled code", "extra": "extras", "verb": "verbs"}
_TITLES |= {"server": "servers"}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that is well, or is not; `mend` is the command that would make it well."""

    about: str  # system, compiled, extra, verb, server
    name: str
    well: bool
    says: str
    mend: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Health(Displayed):
    """What was looked at; `answers` is whether every server that was named does.

    >>> rp.doctor().answers
    True
    """

    checks: tuple[Check, ...]

    @property
    def answers(self) -> bool:
        return all(check.well for check in self.checks if check.about == "server")

    kind: ClassVar[str] = "doctor"

    @property
    def exit_code(self) -> int:
        """1 if a server that was named does not answer."""
        return 0 if self.answers else 1

    def summary(self) -> Summary:
        """All of it in lines, each command on one of its own."""
        return Summary("\n".join(self.words()))

    def tables(self) -> list[Table]:
        """None: the lines say it all."""
        return []

    def full_tables(self) -> list[Table]:
        """A row for each check."""
        columns = [Column("about", "text"), Column("name", "text"), Column("well", "text")]
        columns += [Column("what", "text", prose=True), Column("to mend it", "text", folds=True)]
        rows = [
            (c.about, c.name, "yes" if c.well else "no", c.says, c.mend or "–") for c in self.checks
        ]
        return [Table(columns, rows)]

    def words(self) -> list[str]:
        """All of it in lines that a terminal shows whole, each command on one of its own."""
        lines: list[str] = []
        for about, title in _TITLES.items():
            alike: dict[tuple[str, str], list[str]] = {}
            for check in self.checks:
                if check.about == about:
                    alike.setdefault((check.says, check.mend), []).append(check.name)
            lines += ["", title] if alike and title else []
            for (says, mend), names in alike.items():
                lines.append(f"  {', '.join(names)}: {says}")
                lines += [f"      {mend}"] if mend else []
        return lines

    def __repr__(self) -> str:
        return "\n".join(self.words())

    def to_dict(self) -> dict[str, Any]:
        return {"checks": [asdict(check) for check in self.checks]}


def check_health(
    url: str | None, model: str | None, key_env: str | None, milvus: str | None
) -> Health:
    """Look at what is installed, what each command needs, and whether what is named answers."""
    checks = [*_system(), *_compiled(), *_extras(), *_verbs()]
    if url is not None:
        register_address(url)
        checks.append(_asked("endpoint", lambda: _endpoint(url, model, key_env)))
    if os.environ.get(POSTGRES):
        checks.append(_asked("PostgreSQL", _postgres))
    if milvus is not None:
        register_address(milvus)
        checks.append(_asked("Milvus", lambda: _milvus(milvus)))
    return Health(tuple(checks))


def _system() -> Iterator[Check]:
    version = platform.python_version()
    where = f"{platform.system()} on {platform.machine()}, {_origin()[0]}"
    yield Check("system", "rankproof", True, f"{__version__}, Python {version}, {where}")
    yield _gpu()


def _origin() -> tuple[str, str]:
    """Where the package comes from (a checkout, a file, or an index), and what pip calls that."""
    try:
        said = importlib.metadata.distribution("rankproof").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return "not installed", f"--editable {quote(str(Path(__file__).parents[3]))}"
    found = json.loads(said or "{}")
    if "vcs_info" in found:
        return "installed from a repository", quote(f"{found['vcs_info']['vcs']}+{found['url']}")
    address = urlsplit(found.get("url", ""))
    if address.scheme != "file":
        return "installed from an index", "rankproof"
    place = quote(url2pathname(address.path))
    if "dir_info" not in found:
        return "installed from a file", place
    if found["dir_info"].get("editable"):
        return "installed from a checkout, which it follows", f"--editable {place}"
    return "installed from a checkout", place


def _gpu() -> Check:
    if find_spec("torch") is None:
        return Check("system", "GPU", False, "not looked for without torch", mend_of("torch"))
    import torch

    if torch.cuda.is_available():
        return Check("system", "GPU", True, str(torch.cuda.get_device_name(0)))
    return Check("system", "GPU", False, "none that torch can use; the processor does the work")


def _compiled() -> Iterator[Check]:
    from rankproof.foundation import kernels
    from rankproof.precision import fixed_sum, topk

    switched = os.environ.get("RANKPROOF_NATIVE") == "0"
    again = "pip install --force-reinstall --no-deps --no-cache-dir"  # pip keeps what it built
    mend = "unset RANKPROOF_NATIVE" if switched else f"{again} {_origin()[1]}"
    absent = "switched off" if switched else "not built (that takes a C compiler)"
    for name, module in (
        ("reading", kernels.native), ("scoring", fixed_sum.native), ("searching", topk.native)
    ):  # fmt: skip
        used = module is not None
        said = "in use" if used else f"{absent}: the same figures, slower"
        yield Check("compiled", name, used, said, "" if used else mend)


def mend_of(extra: str) -> str:
    """The command that installs an extra: pip reads it from what is installed."""
    return f"pip install 'rankproof[{extra}]'"


@cache
def required() -> dict[str, tuple[str, ...]]:
    """Extra → the packages that it names, those of other extras among them."""
    try:
        lines = importlib.metadata.requires("rankproof") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    direct: dict[str, list[str]] = {}
    for line in lines:
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        name = re.match(r"([\w.-]+)(?:\[([\w, -]+)\])?", line)
        if extra is None or name is None or _elsewhere(line):
            continue
        found = direct.setdefault(extra[1], [])
        if name[1] == "rankproof":
            found += [f"[{other.strip()}]" for other in name[2].split(",")]
        else:
            found.append(name[1])

    def packages(extra: str) -> list[str]:
        return [
            package
            for named in direct.get(extra, [])
            for package in (packages(named[1:-1]) if named.startswith("[") else [named])
        ]

    return {extra: tuple(dict.fromkeys(packages(extra))) for extra in direct}


def _elsewhere(line: str) -> bool:
    """Whether a requirement is for another system than this one."""
    system = re.search(r"sys_platform\s*(==|!=)\s*['\"](\w+)['\"]", line)
    here = {"Linux": "linux", "Darwin": "darwin", "Windows": "win32"}.get(platform.system())
    return system is not None and (system[2] == here) != (system[1] == "==")


def lacking(extra: str) -> list[str]:
    """Packages of an extra that are not installed."""
    missing = []
    for package in required().get(extra, ()):
        try:
            importlib.metadata.distribution(package)
        except importlib.metadata.PackageNotFoundError:
            missing.append(package)
    return missing


def _extras() -> Iterator[Check]:
    for extra in required():
        missing = lacking(extra)
        said = f"lacks {', '.join(missing)}" if missing else "installed"
        yield Check("extra", extra, not missing, said, mend_of(extra) if missing else "")


def _verbs() -> Iterator[Check]:
    for verb, needs in command_needs().items():
        missing = [name for name in needs.modules if find_spec(name) is None]
        present = f"has what it needs ({needs.extra})" if needs.extra else "needs nothing more"
        said = f"lacks {', '.join(missing)}" if missing else present
        more: dict[str, list[str]] = {}  # by what they bring; what is there is no news
        for other, brings in needs.optional.items():
            if other not in required() or lacking(other):
                more.setdefault(brings, []).append(other)
        if more:
            each = (f"{', '.join(others)} ({brings})" for brings, others in more.items())
            said += f"; can do more with {', '.join(each)}"
        yield Check("verb", verb, not missing, said, mend_of(needs.extra) if missing else "")
    yield Check("verb", "all others", True, "need nothing more")


# ------------------------------------------------------------------------------------- servers


def _asked(name: str, ask: Callable[[], str]) -> Check:
    try:
        return Check("server", name, True, redact(ask()))
    except MissingExtra as error:
        says, _, mend = str(error).rpartition(": ")
        return Check("server", name, False, says, mend)
    except InputError as error:
        place = f"{error.place}: " if error.place else ""
        return Check("server", name, False, f"{place}{error.problem}", error.remedy or "")


def _endpoint(url: str, model: str | None, key_env: str | None) -> str:
    """What a chat endpoint says: to a question where a model is named, else its list of models."""
    absent = next((name for name in _ASKING if find_spec(name) is None), None)
    if absent is not None:
        raise MissingExtra("an endpoint", absent, "judge")
    from rankproof.retrieval.chat import Chat
    from rankproof.retrieval.http import Address, JsonClient

    if model is not None:
        chat = Chat(model, url, key_env, timeout_s=_PATIENCE, attempts=1, max_tokens=16)
        try:
            answer = chat.ask("You are asked whether you are there.", "Reply with the word yes.")
        finally:
            chat.close()
        return f"{answer.model} answers in {answer.seconds:.1f} s"
    client = JsonClient(Address(url, key_env, _PATIENCE, 1), "/models")
    try:
        said = client.ask(None, lambda value: value, method="GET").value
    finally:
        client.close()
    rows = said.get("data") if isinstance(said, dict) else None
    names = [str(row.get("id")) for row in rows or [] if isinstance(row, dict)]
    return f"answers; models: {', '.join(names[:5]) or 'none named'}"


def _postgres() -> str:
    if find_spec("psycopg") is None:
        raise MissingExtra("PostgreSQL", "psycopg", "pgvector")
    import psycopg

    dsn = os.environ[POSTGRES]
    register_secret(dsn)
    try:
        with psycopg.connect(dsn, connect_timeout=int(_PATIENCE)) as connection:
            row = connection.execute(
                "SELECT current_setting('server_version'), "
                "(SELECT default_version FROM pg_available_extensions WHERE name = 'vector')"
            ).fetchone()
    except (psycopg.Error, UnicodeError) as error:
        said = redact(" ".join(str(error).split()))[:200]
        raise InputError(said, remedy=f"start it, or check ${POSTGRES}") from None
    version, vector = row if row is not None else ("?", None)
    if vector is None:
        raise InputError(
            f"PostgreSQL {version} answers and has no pgvector",
            remedy="install pgvector on that server",
        )
    return f"PostgreSQL {version} answers, with pgvector {vector}"


def _milvus(uri: str) -> str:
    if find_spec("pymilvus") is None:
        raise MissingExtra("Milvus", "pymilvus", "milvus")
    from rankproof.retrieval.indexes.milvus import MilvusServer

    if "://" not in uri:
        raise InputError(
            "this is not an address", place="--milvus", remedy="write http://host:19530"
        )
    server = MilvusServer(uri, None)
    with server.errors():
        return f"Milvus {server.client.get_server_version()} answers"
