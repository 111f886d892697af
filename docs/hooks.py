"""What mkdocs asks for: the measurements of bench/ are a page of the site too."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

MEASURED = "bench/RESULTS.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    source = Path(config.config_file_path).parent / MEASURED
    files.append(File.generated(config, "results.md", abs_src_path=str(source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return markdown.replace(f"(../{MEASURED}", "(results.md")  # with or without an anchor
