"""Which failures of tests mean that an optional package is not installed: those become skips.

Packages are the distributions of constraints.txt, which pins those of every extra and group. A
package that is installed and cannot be imported, or a name that is none of theirs, stays a failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

_CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
OPTIONAL = set(re.findall(r"^([\w.-]+)==", _CONSTRAINTS.read_text("utf-8"), re.MULTILINE))
# Distributions whose module has another name.
DISTRIBUTIONS = {
    "faiss": "faiss-cpu",
    "llama-index": "llama-index-core",
    "material": "mkdocs-material",
    "opensearchpy": "opensearch-py",
    "pytrec-eval": "pytrec-eval-terrier",
    "sklearn": "scikit-learn",
    "stemmer": "pystemmer",
    "trm": "tie-aware-retrieval-metrics",
    "xdist": "pytest-xdist",
    "yaml": "pyyaml",
}
# What Python says, and what rankproof says (MissingExtra), also where a repr escapes the quotes.
_ABSENCE = re.compile(
    r"No module named \\?'([\w-]+)|\bneeds ([\w.-]+): pip install \\?'rankproof\["
)


def absent_package(error: BaseException) -> str | None:
    """Return the optional distribution that an error says is missing, if it is not installed."""
    for message in _messages(error):
        for match in _ABSENCE.finditer(message):
            name = (match[1] or match[2]).lower().replace("_", "-")
            package = DISTRIBUTIONS.get(name, name)
            if package in OPTIONAL and not _is_installed(package):
                return package
    return None


def _messages(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield str(error)
        error = error.__cause__  # not the context: a fallback for an absent package may be wrong


def _is_installed(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True
