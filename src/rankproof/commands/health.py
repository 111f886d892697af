"""Check what is installed, what each command needs, and whether the user's servers answer.

Only servers that the user names are called: an endpoint or a Milvus server by its address,
PostgreSQL by the environment variable that indexes read too.
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
_TIMEOUT = 10.0  # seconds for a server to answer
_CLIENT_MODULES = ("pydantic", "yaml", "httpx2", "tenacity")  # that an endpoint is called with


def command_needs() -> dict[str, Needs]:
    """What each command needs, by its first word, for commands that need anything."""
    return {c.name.split()[0]: c.needs for c in all_commands() if c.needs != Needs()}


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the installation or of a server, and its outcome."""

    about: str  # the group: system, compiled, extra, verb (a command), server
    name: str
    well: bool
    says: str  # the outcome in words
    mend: str = ""  # the command that would repair it


@dataclass(frozen=True, slots=True, repr=False)
class Health(Displayed):
    """The outcome of all checks.

    >>> rp.doctor().answers
    True
    """

    checks: tuple[Check, ...]

    @property
    def answers(self) -> bool:
        """True if every server that was named answers."""
        return all(check.well for check in self.checks if check.about == "server")

    kind: ClassVar[str] = "doctor"

    @property
    def exit_code(self) -> int:
        """1 if a server that was named does not answer."""
        return 0 if self.answers else 1

    def summary(self) -> Summary:
        """The commands that work, what is missing, servers, and all checks as details."""
        return Summary("\n".join(self.lines()), details=self._details())

    def tables(self) -> list[Table]:
        """None on a terminal: the summary has what matters."""
        return []

    def full_tables(self) -> list[Table]:
        """A row for each check."""
        columns = [Column("about", "text"), Column("name", "text"), Column("works", "text")]
        columns += [Column("what", "text", prose=True), Column("repair", "text", folds=True)]
        rows = [
            (c.about, c.name, "yes" if c.well else "no", c.says, c.mend or "–") for c in self.checks
        ]
        return [Table(columns, rows)]

    def lines(self) -> list[str]:
        """What works, what does not and the command that repairs it, and named servers."""
        commands = [check for check in self.checks if check.about == "verb"]
        needy = command_needs()
        ready = [c.name for c in all_commands() if c.name.split()[0] not in needy]
        ready += [check.name for check in commands if check.well and check.name in needy]
        lines = [f"Ready: {', '.join(ready)}"] if ready else []
        names_by_repair: dict[str, list[str]] = {}
        for check in self.checks:
            if check.about in ("verb", "compiled") and not check.well:
                names_by_repair.setdefault(check.mend, []).append(check.name)
        lines += [
            f"Missing: {', '.join(names)} → {mend}" for mend, names in names_by_repair.items()
        ]
        for check in self.checks:
            if check.about == "server":
                lines.append(
                    f"{check.name}: {check.says}{f' → {check.mend}' if check.mend else ''}"
                )
        return lines

    def _details(self) -> list[str]:
        """Every other check, those with one outcome in one line."""
        names_by_outcome: dict[tuple[str, str], list[str]] = {}
        for check in self.checks:
            if check.about in ("system", "extra"):
                names_by_outcome.setdefault((check.says, check.mend), []).append(check.name)
        return [
            f"{', '.join(names)}: {says}{f' → {mend}' if mend else ''}"
            for (says, mend), names in names_by_outcome.items()
        ]

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def to_dict(self) -> dict[str, Any]:
        return {"checks": [asdict(check) for check in self.checks]}


def check_health(
    url: str | None, model: str | None, key_env: str | None, milvus: str | None
) -> Health:
    """Check what is installed, what each command needs, and whether the named servers answer."""
    checks = [*_system(), *_compiled(), *_extras(), *_commands()]
    if url is not None:
        register_address(url)
        checks.append(_check_server("endpoint", lambda: _endpoint(url, model, key_env)))
    if os.environ.get(POSTGRES):
        checks.append(_check_server("PostgreSQL", _postgres))
    if milvus is not None:
        register_address(milvus)
        checks.append(_check_server("Milvus", lambda: _milvus(milvus)))
    return Health(tuple(checks))


def _system() -> Iterator[Check]:
    version = platform.python_version()
    machine = f"{platform.system()} on {platform.machine()}, {_origin()[0]}"
    yield Check("system", "rankproof", True, f"{__version__}, Python {version}, {machine}")
    yield _gpu()


def _origin() -> tuple[str, str]:
    """Where the package was installed from, in words and as an argument of pip."""
    try:
        direct_url = importlib.metadata.distribution("rankproof").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return "not installed", f"--editable {quote(str(Path(__file__).parents[3]))}"
    origin = json.loads(direct_url or "{}")
    if "vcs_info" in origin:
        vcs = origin["vcs_info"]["vcs"]
        return "installed from a repository", quote(f"{vcs}+{origin['url']}")
    address = urlsplit(origin.get("url", ""))
    if address.scheme != "file":
        return "installed from an index", "rankproof"
    path = quote(url2pathname(address.path))
    if "dir_info" not in origin:
        return "installed from a file", path
    if origin["dir_info"].get("editable"):
        return "installed from a checkout, which it follows", f"--editable {path}"
    return "installed from a checkout", path


def _gpu() -> Check:
    if find_spec("torch") is None:
        return Check("system", "GPU", False, "not looked for without torch", install_line("torch"))
    import torch

    if torch.cuda.is_available():
        return Check("system", "GPU", True, str(torch.cuda.get_device_name(0)))
    return Check("system", "GPU", False, "none that torch can use; the processor does the work")


def _compiled() -> Iterator[Check]:
    from rankproof.foundation import kernels
    from rankproof.precision import fixed_sum, topk

    is_switched_off = os.environ.get("RANKPROOF_NATIVE") == "0"
    if is_switched_off:
        problem, repair = "switched off", "unset RANKPROOF_NATIVE"
    else:
        problem = "not built (that takes a C compiler)"
        # Without --no-cache-dir pip installs the wheel that it built before.
        options = "--force-reinstall --no-deps --no-cache-dir"
        repair = f"pip install {options} {_origin()[1]}"
    modules = {"reading": kernels.native, "scoring": fixed_sum.native, "searching": topk.native}
    for name, module in modules.items():
        if module is not None:
            yield Check("compiled", name, True, "in use")
        else:
            yield Check("compiled", name, False, f"{problem}: the same values, slower", repair)


def install_line(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install 'rankproof[{extra}]'"


@cache
def required() -> dict[str, tuple[str, ...]]:
    """The packages of each extra, with those of the extras that it includes."""
    try:
        lines = importlib.metadata.requires("rankproof") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    direct: dict[str, list[str]] = {}  # packages, and other extras as "[extra]"
    for line in lines:
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        name = re.match(r"([\w.-]+)(?:\[([\w, -]+)\])?", line)
        if extra is None or name is None or _is_for_another_system(line):
            continue
        requirements = direct.setdefault(extra[1], [])
        if name[1] == "rankproof":
            requirements += [f"[{included.strip()}]" for included in name[2].split(",")]
        else:
            requirements.append(name[1])

    def packages(extra: str) -> Iterator[str]:
        for requirement in direct.get(extra, []):
            if requirement.startswith("["):
                yield from packages(requirement[1:-1])
            else:
                yield requirement

    return {extra: tuple(dict.fromkeys(packages(extra))) for extra in direct}


def _is_for_another_system(line: str) -> bool:
    """True if the marker of a requirement excludes this system."""
    marker = re.search(r"sys_platform\s*(==|!=)\s*['\"](\w+)['\"]", line)
    if marker is None:
        return False
    platforms = {"Linux": "linux", "Darwin": "darwin", "Windows": "win32"}
    is_named = marker[2] == platforms.get(platform.system())
    return is_named != (marker[1] == "==")


def missing_packages(extra: str) -> list[str]:
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
        if missing := missing_packages(extra):
            lacks = f"lacks {', '.join(missing)}"
            yield Check("extra", extra, False, lacks, install_line(extra))
        else:
            yield Check("extra", extra, True, "installed")


def _commands() -> Iterator[Check]:
    for command, needs in command_needs().items():
        missing = [name for name in needs.modules if find_spec(name) is None]
        outcome = f"has what it needs ({needs.extra})" if needs.extra else "needs nothing more"
        if missing:
            outcome = f"lacks {', '.join(missing)}"
        extras_by_benefit: dict[str, list[str]] = {}  # of optional extras that are not installed
        for extra, benefit in needs.optional.items():
            if extra not in required() or missing_packages(extra):
                extras_by_benefit.setdefault(benefit, []).append(extra)
        if extras_by_benefit:
            benefits = (f"{', '.join(extras)} ({b})" for b, extras in extras_by_benefit.items())
            outcome += f"; can do more with {', '.join(benefits)}"
        repair = install_line(needs.extra) if missing else ""
        yield Check("verb", command, not missing, outcome, repair)
    yield Check("verb", "all others", True, "need nothing more")


# ------------------------------------------------------------------------------------- servers


def _check_server(name: str, connect: Callable[[], str]) -> Check:
    """Connect to a server; `connect` returns its answer in words or raises an error."""
    try:
        return Check("server", name, True, redact(connect()))
    except MissingExtra as error:
        problem, _, remedy = str(error).rpartition(": ")
        return Check("server", name, False, problem, remedy)
    except InputError as error:
        place = f"{error.place}: " if error.place else ""
        return Check("server", name, False, f"{place}{error.problem}", error.remedy or "")


def _endpoint(url: str, model: str | None, key_env: str | None) -> str:
    """The answer of a chat endpoint: to a question if a model is named, else its models."""
    missing = next((name for name in _CLIENT_MODULES if find_spec(name) is None), None)
    if missing is not None:
        raise MissingExtra("an endpoint", missing, "judge")
    from rankproof.retrieval.chat import Chat
    from rankproof.retrieval.http import Address, JsonClient

    if model is not None:
        chat = Chat(model, url, key_env, timeout_s=_TIMEOUT, attempts=1, max_tokens=16)
        try:
            answer = chat.ask("You are asked whether you are there.", "Reply with the word yes.")
        finally:
            chat.close()
        return f"{answer.model} answers in {answer.seconds:.1f} s"
    client = JsonClient(Address(url, key_env, _TIMEOUT, 1), "/models")
    try:
        reply = client.ask(None, lambda value: value, method="GET").value
    finally:
        client.close()
    rows = reply.get("data") if isinstance(reply, dict) else None
    names = [str(row.get("id")) for row in rows or [] if isinstance(row, dict)]
    return f"answers; models: {', '.join(names[:5]) or 'none named'}"


def _postgres() -> str:
    """The versions of PostgreSQL and pgvector on the server of the environment variable."""
    if find_spec("psycopg") is None:
        raise MissingExtra("PostgreSQL", "psycopg", "pgvector")
    import psycopg

    dsn = os.environ[POSTGRES]
    register_secret(dsn)
    try:
        with psycopg.connect(dsn, connect_timeout=int(_TIMEOUT)) as connection:
            row = connection.execute(
                "SELECT current_setting('server_version'), "
                "(SELECT default_version FROM pg_available_extensions WHERE name = 'vector')"
            ).fetchone()
    except (psycopg.Error, UnicodeError) as error:
        problem = redact(" ".join(str(error).split()))[:200]
        raise InputError(problem, remedy=f"start it, or check ${POSTGRES}") from None
    version, vector = row if row is not None else ("?", None)
    if vector is None:
        raise InputError(
            f"PostgreSQL {version} answers and has no pgvector",
            remedy="install pgvector on that server",
        )
    return f"PostgreSQL {version} answers, with pgvector {vector}"


def _milvus(uri: str) -> str:
    """The version of a Milvus server."""
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
