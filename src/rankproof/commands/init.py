"""`init`: a folder of documents becomes a corpus, questions and configurations."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Literal

from rankproof.commands.options import DOCUMENTS
from rankproof.commands.registry import Option, Source, command

if TYPE_CHECKING:
    from rankproof.projects import Prepared


@command(group="RAG", needs=DOCUMENTS, replay="it holds none that follows from its inputs alone")
def init(
    folder: Annotated[
        str | os.PathLike[str],
        Option(metavar="FOLDER", positional=True),
        "A folder of documents.",
    ],
    out: Annotated[
        str | os.PathLike[str] | None,
        Option(metavar="FOLDER", default_text="FOLDER-rankproof"),
        "Where the corpus goes.",
    ] = None,
    *,
    questions: Annotated[
        str | os.PathLike[str] | None,
        Source("FILE", "questions"),
        "A text file, a question on each line.",
    ] = None,
    size: Annotated[
        int | None, Option(minimum=1, default_text="1200"), "Characters of a passage, at most."
    ] = None,
    overlap: Annotated[
        int | None,
        Option(minimum=0, default_text="0"),
        "Characters that consecutive passages share.",
    ] = None,
    by: Annotated[
        Literal["headings", "separators", "sentences"] | None,
        Option(default_text="headings"),
        "Where documents are cut.",
    ] = None,
    generate: Annotated[
        int, Option(minimum=0), "Have the chat model write this many questions."
    ] = 0,
    url: Annotated[str | None, "A chat endpoint that judges: http://localhost:8000/v1."] = None,
    model: Annotated[str | None, "The model at that endpoint."] = None,
    key_env: Annotated[str | None, "The environment variable that holds its key."] = None,
    seed: Annotated[int, Option(minimum=0), "Seed that draws passages for --generate."] = 0,
) -> Prepared:
    """Make a corpus, questions and configurations from a folder of documents.

    Reads text, Markdown, HTML, PDF, JSONL and CSV. Files that are empty, broken or the same as
    another are reported and skipped. Run it again when documents change: the others keep their
    passages, and --size, --overlap and --by keep their last values.

    $ rankproof init handbook
    $ rankproof init handbook --questions questions.txt
    $ rankproof init handbook --url http://localhost:8000/v1 --model qwen --generate 50

    >>> from pathlib import Path
    >>> Path("notes").mkdir(exist_ok=True)
    >>> _ = Path("notes/pump.txt").write_text("A loud pump has air in it.")
    >>> rp.init("notes", "notes-set").passages
    1
    """
    from rankproof.projects.preparing import init as prepare_folder

    return prepare_folder(
        os.fspath(folder),
        None if out is None else os.fspath(out),
        questions=None if questions is None else os.fspath(questions),
        size=size,
        overlap=overlap,
        by=by,
        generate=generate,
        url=url,
        model=model,
        key_env=key_env,
        seed=seed,
    )
