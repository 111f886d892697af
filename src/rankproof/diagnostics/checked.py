"""A diagnosis with the outcome of its rules, and the files written of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from rankproof.diagnostics.names import NamesDiagnosis
from rankproof.diagnostics.noise import NoiseDiagnosis
from rankproof.diagnostics.rules import Rule, Verdict, check_rules
from rankproof.diagnostics.settings import DiagnoseSettings
from rankproof.foundation.files import write_atomically
from rankproof.foundation.manifest import manifest
from rankproof.foundation.redaction import remove_secrets
from rankproof.presentation.charts import Chart
from rankproof.presentation.display import Displayed
from rankproof.presentation.result import KEY, Summary, stored
from rankproof.presentation.tables import Table

_PACKAGES = ("numpy", "polars", "wordllama", "sentence-transformers", "torch")


@dataclass(frozen=True, slots=True, repr=False)
class CheckedDiagnosis(Displayed):
    """A diagnosis, how it was made, and which rules it breaks.

    >>> checked = rp.diagnose.names(queries=4, runs=1, fail_if=["name drop > 99%"])
    >>> checked.diagnosis.language, checked.exit_code
    ('en', 1)
    """

    kind: ClassVar[str] = "diagnosis"
    diagnosis: NamesDiagnosis | NoiseDiagnosis
    manifest: dict[str, Any]
    verdicts: tuple[Verdict, ...]
    files: tuple[Path, ...] = ()  # written by this command

    @classmethod
    def of(
        cls,
        diagnosis: NamesDiagnosis | NoiseDiagnosis,
        rules: Sequence[Rule],
        settings: DiagnoseSettings,
        inputs: dict[str, Path],
        folder: Path | None,
    ) -> CheckedDiagnosis:
        """Check the rules; if a folder is named, write the result as JSON and its charts there."""
        made_from = manifest(
            diagnosis.kind,
            config=settings.model_dump(mode="json"),
            inputs=inputs,
            seed=diagnosis.seed,
            packages=_PACKAGES,
        )
        checked = cls(diagnosis, made_from, tuple(check_rules(rules, diagnosis)))
        return checked if folder is None else replace(checked, files=checked._write(folder))

    def _write(self, folder: Path) -> tuple[Path, ...]:
        """Write the JSON and the charts; return their paths."""
        data = remove_secrets(self.to_dict() | {KEY: stored(self.diagnosis)})
        text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        name, charts = self.diagnosis.kind, self.diagnosis.plot()
        return (
            write_atomically(folder / f"{name}.json", lambda path: path.write_text(text, "utf-8")),
            *(charts.save(folder / f"{name}.{ending}") for ending in ("html", "svg")),
        )

    @property
    def exit_code(self) -> int:
        """1 if a rule is broken, else 0."""
        return int(any(verdict.failed for verdict in self.verdicts))

    @property
    def warnings(self) -> list[str]:
        """A line for each file written, then a sentence for each rule."""
        written = [f"wrote {path}" for path in self.files]
        return [*written, *(verdict.sentence for verdict in self.verdicts)]

    def summary(self) -> Summary:
        """The diagnosis in words."""
        return Summary(notes=["", "What this says", *self.diagnosis.words()])

    def tables(self) -> list[Table]:
        """The tables of the diagnosis."""
        return self.diagnosis.tables()

    def charts(self) -> list[Chart]:
        """The charts of the diagnosis."""
        return self.diagnosis.charts()

    def to_dict(self) -> dict[str, Any]:
        """Return what `--format json` prints, and names.json or noise.json holds."""
        rules = [verdict.to_dict() for verdict in self.verdicts]
        return {"manifest": self.manifest, **self.diagnosis.to_dict(), "rules": rules}
