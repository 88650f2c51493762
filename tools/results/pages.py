"""Render the parts of pages between `<!-- result: NAME -->` and its end from docs/results."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tools.results.tables import PARTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PART = re.compile(r"(<!-- result: (?P<name>[\w-]+) -->\n).*?(<!-- end of result -->)", re.DOTALL)


def pages(documents: Path) -> Iterator[Path]:
    """Yield the pages that can have marked parts."""
    yield documents.parent / "README.md"
    yield from sorted(documents.rglob("*.md"))


def names_in(text: str) -> list[str]:
    """Return the names of a page's marked parts."""
    return [found["name"] for found in PART.finditer(text)]


def rendered(text: str, documents: Path) -> str:
    """Return a page with its marked parts rendered again.

    Raises:
        KeyError: the page names an unknown part.
    """
    return PART.sub(lambda found: f"{found[1]}{PARTS[found['name']](documents)}\n{found[3]}", text)


def render(documents: Path) -> list[Path]:
    """Render the marked parts of all pages; return the pages that changed."""
    changed = []
    for page in pages(documents):
        text = page.read_text() if page.exists() else ""
        new = rendered(text, documents)
        if new != text:
            page.write_text(new)
            changed.append(page)
    return changed
