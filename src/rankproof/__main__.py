"""`python -m rankproof`."""

from rankproof.cli import main

main()
