"""`rankproof demo`: two small runs that ship with the package, and what their ties hide."""

from __future__ import annotations

import shutil
import textwrap
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer

FILES = {
    "demo-qrels.txt": "qrels.txt",
    "demo-plain.trec": "plain.trec",
    "demo-saturated.trec": "saturated.trec",
}
MEASURES = ["nDCG@5", "nDCG@10", "RR", "R@5"]


def command(
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Also copy the runs and judgements to DIR."),
    ] = None,
) -> None:
    """Show on two small runs how ties can make the worse one look better."""
    from rankproof.cli import compare, evaluate, output
    from rankproof.cli.options import Format
    from rankproof.comparison import compare_evaluations
    from rankproof.errors import InputError
    from rankproof.evaluation import Policy, evaluate_tables, parse_all
    from rankproof.records import read_qrels, read_run

    with as_file(files("rankproof") / "data") as folder:
        qrels = read_qrels(folder / "demo-qrels.txt")
        runs = [read_run(folder / f"demo-{n}.trec", name=n) for n in ("saturated", "plain")]
        if out is not None:
            try:
                out.mkdir(parents=True, exist_ok=True)
                for source, target in FILES.items():
                    shutil.copyfile(folder / source, out / target)
            except OSError as error:
                raise InputError(
                    f"cannot write there ({error.strerror or error})",
                    place=str(out),
                    remedy="name another folder",
                ) from None
    measures = parse_all(MEASURES)
    evaluations = [evaluate_tables(run, qrels, measures, Policy()) for run in runs]
    comparison = compare_evaluations(evaluations)
    pair = comparison["saturated", "plain"]
    first = pair[measures[0]]
    table = evaluate.table(evaluations)
    print("Two rerankers score the same 40 candidates for 30 questions. `saturated` ends in a")
    print("bfloat16 sigmoid: near 1 it has few scores left, so its candidates tie.")
    output.show(Format.table, [output.Table(table.columns, table.rows)], None)
    print("saturated − plain:")
    compared = compare.pairs_table(comparison)
    output.show(Format.table, [output.Table(compared.columns, compared.rows)], None)
    one, other = (evaluation[measures[0]] for evaluation in evaluations)
    meaning = (
        f"What this means. The tools in use report the column “oblivious”: {measures[0]} "
        f"{one.oblivious:.3f} for saturated and {other.oblivious:.3f} for plain, so saturated "
        f"wins by {first.oblivious:.3f}. That lead is made of ties: the candidate files list the "
        "judged passages first, and a stable sort leaves them first. Over all orders of the tied "
        f"candidates saturated scores {one.expected:.3f} on average, and plain is ahead by "
        f"{-first.expected:.3f} (p = {first.p_holm:.3f} after Holm). The verdict was reversed on "
        f"{sum(d.reversed for d in pair.values())} of {len(pair)} measures."
    )
    print(textwrap.fill(meaning, 88))
    where = f"{out}/" if out is not None else "DIR/"
    print("\nTry it on these files, then on yours:" + ("" if out else "  (demo --out DIR)"))
    print(f"  rankproof eval {where}qrels.txt {where}saturated.trec {where}plain.trec -m nDCG@5")
    print(f"  rankproof compare {where}qrels.txt {where}saturated.trec {where}plain.trec -m nDCG@5")
