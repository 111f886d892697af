"""`doctor`: what is installed, what is missing, and how to mend it."""

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
    """Say what is installed, what each command needs, what answers, and how to mend the rest.

    Nothing is asked over a network but what you name: --url, --milvus, and PostgreSQL where
    $RANKPROOF_POSTGRES is set. Exits with 1 where one of those does not answer.

    $ rankproof doctor
    $ rankproof doctor --url http://localhost:8000/v1 --model NAME --key-env KEY

    >>> {check.about for check in rp.doctor().checks} >= {"system", "extra", "verb"}
    True
    """
    from rankproof.commands.health import check_health

    return check_health(url, model, key_env, milvus)
