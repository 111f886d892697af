"""A page in a real browser without a window: Chromium, driven by playwright.

with browser() as running, tab(running, width=390, dark=True) as opened:
    opened.page.goto(url)
    assert not opened.errors
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from loopback import PATIENCE
from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str | None:
    """Where a Chromium is installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def browser() -> Iterator[Browser]:
    """A running browser; skips the test, with the reason, where none is installed."""
    path = chromium()
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        yield running
        running.close()


@dataclass
class Tab:
    """A page, what went wrong on it and what it asked for."""

    page: Page
    errors: list[str] = field(default_factory=list)  # of the console and of scripts
    requests: list[str] = field(default_factory=list)


@contextmanager
def tab(
    running: Browser, width: int = 1280, height: int = 800, dark: bool = False
) -> Iterator[Tab]:
    """A fresh page that shares nothing with others."""
    options: dict[str, Any] = {"viewport": {"width": width, "height": height}}
    context = running.new_context(**options, color_scheme="dark" if dark else "light")
    opened = Tab(context.new_page())
    opened.page.set_default_timeout(1000 * PATIENCE)
    opened.page.on(
        "console",
        lambda message: opened.errors.append(message.text) if message.type == "error" else None,
    )
    opened.page.on("pageerror", lambda error: opened.errors.append(str(error)))
    opened.page.on("request", lambda request: opened.requests.append(request.url))
    try:
        yield opened
    finally:
        context.close()
