"""The bar of commands that are still on typer."""

from rankproof.cli.terminal import progress_bar as progress

__all__ = ["progress"]
