"""`trec_eval`: its arguments, its output."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from rankproof.commands.registry import Option, Source, command


@command(group="Evaluate", name="trec_eval", prints=True)
def trec_eval(
    qrels: Annotated[str, Source("QRELS", "qrels"), "Judgments."],
    run: Annotated[str, Source("RUN", "run"), "A run."],
    *,
    per_query: Annotated[bool, Option(("-q",)), "Print the values of each query, too."] = False,
    measure: Annotated[
        Sequence[str],
        Option(("-m",), metavar="MEASURE", default_text="official", is_split=False),
        "A measure as trec_eval names it (map, P.5,10, all_trec); may be repeated.",
    ] = (),
    complete: Annotated[
        bool, Option(("-c",)), "Average over every judged query; one not in RUN counts 0."
    ] = False,
    level: Annotated[
        int, Option(("-l",), metavar="GRADE"), "The lowest grade that is relevant."
    ] = 1,
    depth: Annotated[
        int | None, Option(("-M",), metavar="N", minimum=1), "Read the first N of each list."
    ] = None,
    judged_only: Annotated[bool, Option(("-J",)), "Drop unjudged documents."] = False,
    collection: Annotated[
        int, Option(("-N",), metavar="N"), "Documents in the collection, for utility."
    ] = 0,
    no_summary: Annotated[bool, Option(("-n",)), "Print no summary."] = False,
    judged_as: Annotated[
        Literal["qrels", "qrels_jg", "qrels_prefs", "prefs"],
        Option(("-R",)),
        "Format of QRELS: the second column names who judged (qrels_jg), grades are preferences "
        "(qrels_prefs), or each line holds query, person, part, document, level (prefs).",
    ] = "qrels",
    listed_as: Annotated[
        Literal["trec_results"], Option(("-T",)), "Format of RUN."
    ] = "trec_results",
    reference: Annotated[
        str | None,
        Source("FILE", "reference", names=("-Z",)),
        "Print standard scores; FILE holds query, measure, mean, deviation of other runs.",
    ] = None,
    version: Annotated[
        Literal["9", "10"], "The version of trec_eval; 10 adds rbp, rbp_resid and unj."
    ] = "9",
    ties: Annotated[
        bool, "Add to each line what all orders of ties give: expected, lowest, highest."
    ] = False,
) -> int:
    """Print what trec_eval 9 or 10 prints, byte for byte, so that a script changes one word.

    `rankproof eval --like trec_eval` gives the same values with all that we say about them.

    $ rankproof trec_eval -q -c -m ndcg_cut.10 qrels.txt run.trec
    """
    from rankproof.commands.inputs import read_judgments
    from rankproof.compat import trec_eval as shim
    from rankproof.compat.preferences import read_annotators
    from rankproof.data import read_run
    from rankproof.data.sources import Source as DataSource
    from rankproof.data.trec import tag_of
    from rankproof.foundation.errors import InputError
    from rankproof.foundation.progress import announce

    if ties and (judged_as != "qrels" or reference):
        raise InputError(
            "these figures are of one order of the ties",
            place="--ties",
            remedy="leave out --ties, or -R and -Z",
        )
    source = DataSource(run, as_trec_eval=True)  # which holds what comes through a pipe
    table = read_run(source)
    judged: Any = (
        read_judgments(qrels) if judged_as == "qrels" else read_annotators(qrels, judged_as)
    )
    output = shim.trec_eval(
        judged,
        table,
        measure,
        tag=tag_of(source) or table.name,
        complete=complete,
        level=level,
        depth=depth,
        judged_only=judged_only,
        collection=collection,
        form=judged_as,
        ties=ties,
        version=10 if version == "10" else 9,
        reference=None if reference is None else shim.read_reference(reference),
    )
    if per_query:
        sys.stdout.writelines(output.query_lines())
    if not no_summary:
        sys.stdout.writelines(output.summary_lines())
    notes = [note for side in (judged, table) for note in getattr(side, "notes", ())]
    for note in dict.fromkeys([*notes, *output.notes]):
        announce(note)
    return 0
