"""`rankproof init`: a folder of documents becomes a corpus, questions and configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from rankproof.cli import options
from rankproof.cli.options import Format
from rankproof.foundation.phrasing import plural


def command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of documents.")],
    out: Annotated[
        Path | None, typer.Option(help="Where the corpus goes.", show_default="FOLDER-rankproof")
    ] = None,
    questions: Annotated[
        Path | None, typer.Option(help="A text file, a question on each line.")
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(min=1, help="Characters of a passage, at most.", show_default="1200"),
    ] = None,
    overlap: Annotated[
        int | None,
        typer.Option(min=0, help="Characters that two passages in a row share.", show_default="0"),
    ] = None,
    by: Annotated[
        Literal["headings", "separators", "sentences"] | None,
        typer.Option(help="Where documents are cut.", show_default="headings"),
    ] = None,
    generate: Annotated[
        int, typer.Option(min=0, help="Have the chat model write this many questions.")
    ] = 0,
    url: Annotated[
        str | None, typer.Option(help="A chat endpoint that judges: http://localhost:8000/v1.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model at that endpoint.")] = None,
    key_env: Annotated[
        str | None, typer.Option(help="The environment variable that holds its key.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed that draws the passages to ask about.")
    ] = 0,
    form: options.FormatOption = Format.table,
    wide: options.WideOption = False,
) -> None:
    """Make a corpus, questions and configurations from a folder of documents.

    Text, Markdown, HTML, PDF, JSONL and CSV. Files that are empty, broken or the same as another
    are reported and left out. Run it again when documents change: the others keep their passages.
    """
    from rankproof.cli.output import deliver
    from rankproof.projects import init

    made = init(
        folder,
        out,
        questions=questions,
        size=size,
        overlap=overlap,
        by=by,
        generate=generate,
        url=url,
        model=model,
        key_env=key_env,
        seed=seed,
    )
    changes = {name: sum(file.change == name for file in made.files) for name in ("new", "changed")}
    remarks = [
        f"{plural(made.passages, 'passage')} and {plural(len(made.questions), 'question')} in "
        f"{made.folder}; "
        f"files: {changes['new']} new, {changes['changed']} changed, {len(made.gone)} gone, "
        f"{len(made.files) - sum(changes.values())} as before",
        f"next: {made.next}",
    ]
    deliver(form, made.tables(), made.to_dict(), remarks=remarks)
