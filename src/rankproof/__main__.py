"""`python -m rankproof`."""

from rankproof.cli import run

run()
