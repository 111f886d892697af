"""The commands of rankproof: one typed function each, from which everything else follows.

The command line with its help and completion, the manifest, `verify`, `doctor`, the section of a
report, the Python API and the table in the docs are derived from the function's signature and
docstring. A command holds no code for any of them.

registry.py    `@command`, the markers `Source`, `Option`, `Output`, `Needs`
options.py     parameters that several commands share
inputs.py      arguments → judgments, runs, measures, evaluations
recording.py   manifests, and calls repeated for `verify`
others         the commands; the module is the first word of what is typed

How to add a command
--------------------
Write one file, `commands/NAME.py` (for "golden build" the function stands in `commands/golden.py`;
a module that becomes long is a package whose `__init__` imports its parts):

    from __future__ import annotations

    from typing import TYPE_CHECKING, Annotated, Unpack

    from rankproof.commands.options import EvaluationOptions, Measures, Qrels, Runs, Seed
    from rankproof.commands.registry import Option, Output, Source, command

    if TYPE_CHECKING:
        from rankproof.comparison.pairs import Comparison

    @command(group="Compare", outputs=[Output("plot", "chart_file", "Draw it.", (".svg", ".png"))])
    def compare(
        qrels: Qrels,                                    # a file: positional argument, digested
        runs: Runs,                                      # RUN...: handed over as {name: path}
        measures: Measures = DEFAULT_MEASURES,           # -m A,B or -m A -m B
        *,
        seed: Seed = 0,
        groups: Annotated["Table | None", Source("FILE", "groups"), "Groups of queries."] = None,
        t_test: Annotated[bool, "Add the p of Student's paired t-test."] = False,
        **options: Unpack[EvaluationOptions],            # order, missing, depth, memory, …
    ) -> Comparison:
        \"\"\"Compare runs pairwise: first paragraph, one sentence, shown in both helps.

        Further paragraphs are shown in the command's own help.

        $ rankproof compare qrels.txt a.trec b.trec

        >>> rp.compare(["a.trec", "b.trec"], "qrels.txt").pairs[0].a
        'a'
        \"\"\"
        from rankproof.commands.inputs import EvaluationInputs    # heavy imports: in the body

        inputs = EvaluationInputs.of("compare", qrels, runs, measures, options)
        ...

Rules:
* Parameter types must exist at run time; heavy ones are strings inside `Annotated`. Return types
  may stay under TYPE_CHECKING. No import at the top may load numpy, polars or rich.
* A positional parameter with `Source` is a positional argument of the command line; a keyword-only
  one, or one whose `Source` has `names`, is an option. Parameters without `Source` are options
  (`Option(positional=True)` is not).
* `Sequence[int]`, or a metavar with a comma or dots, takes a list: A,B and repeated alike.
* What cannot change a value (memory, folders of caches) is `Option(recorded=False)`.
* The function returns a result with the methods of `presentation.result.Result`. Optional:
  `warnings`, lines for stderr; `record`, what a repeated call needs and the arguments do not say;
  `to_stored_dict()`, where `--out` holds more than `--format json`.
* Long work opens `foundation.progress.progress`; a line that must be read at once, such as a price,
  goes to `foundation.progress.announce`. The function prints nothing.
* `replay="a model was run"` where `verify` cannot repeat the call; a function of the arguments and
  the stored result where that depends on them, or where recorded replies take a judge's place.
* `needs=RETRIEVAL` (options.py) names the extra; `doctor` and the docs tell it.
* Errors are `InputError(problem, place=, remedy=)`; names of arguments, not of options, in them.

Then export the function in `rankproof/__init__.py` (`HOME`), delete the command's file in `cli/`,
its line in `cli.VERBS` and its entry in `commands/verification.py`.
"""
