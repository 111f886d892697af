"""`rankproof doctor`: what is installed, what is missing, and how to mend it."""

from __future__ import annotations

from typing import Annotated

import typer

from rankproof.cli import options
from rankproof.cli.options import Format


def command(
    url: Annotated[
        str | None, typer.Option(help="Ask this endpoint, such as http://localhost:8000/v1.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Ask this model a question.")] = None,
    key_env: Annotated[
        str | None, typer.Option(help="The environment variable that holds its key.")
    ] = None,
    milvus: Annotated[str | None, typer.Option(help="Ask this Milvus: http://host:19530.")] = None,
    form: options.FormatOption = Format.table,
    wide: options.WideOption = False,
) -> None:
    """Say what is installed, what each verb needs, what answers, and how to mend the rest.

    Nothing is asked over a network but what you name: --url, --milvus, and PostgreSQL where
    $RANKPROOF_POSTGRES is set. Exits with 1 where one of those does not answer.
    """
    from rankproof.cli.output import deliver, say
    from rankproof.commands.health import doctor
    from rankproof.foundation.redaction import redact

    found = doctor(url, model=model, key_env=key_env, milvus=milvus)
    if form is Format.table and not wide:
        say(redact(found.words()))
    else:
        deliver(form, found.tables(), found.to_dict())
    if not found.answers:
        raise typer.Exit(1)
