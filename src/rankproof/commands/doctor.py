"""`doctor`: which commands work, what is missing, and what repairs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from rankproof.commands.registry import Option, command

if TYPE_CHECKING:
    from rankproof.commands.health import Health


@command(group="Tools", replay="it holds none that follows from its inputs alone")
def doctor(
    url: Annotated[
        str | None,
        Option(("--url",), metavar="URL"),
        "Ask this endpoint, such as http://localhost:8000/v1.",
    ] = None,
    *,
    model: Annotated[str | None, "Ask this model a question."] = None,
    key_env: Annotated[str | None, "The environment variable that holds its key."] = None,
    milvus: Annotated[str | None, "Ask this Milvus: http://host:19530."] = None,
) -> Health:
    """Say which commands work here, what is missing, and what installs it.

    No server is called unless you name it: --url, --milvus, or PostgreSQL by $RANKPROOF_POSTGRES.
    Exits with 1 if one of those does not answer.

    $ rankproof doctor
    $ rankproof doctor --explain
    $ rankproof doctor --url http://localhost:8000/v1 --model NAME --key-env KEY

    >>> {check.about for check in rp.doctor().checks} >= {"system", "extra", "verb"}
    True
    """
    from rankproof.commands.health import check_health

    return check_health(url, model, key_env, milvus)
