"""The command line as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys


def rankproof(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "rankproof", *arguments],
        input=stdin,
        capture_output=True,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
    )
