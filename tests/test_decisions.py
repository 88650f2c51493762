"""Decision records are numbered, complete and listed; ARCHITECTURE.md is short."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.support.sources import ROOT

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = ROOT / "docs" / "adr"
PAGES = sorted(FOLDER.glob("[0-9]*.md"))
ARCHITECTURE = ROOT / "broker_core" / "ARCHITECTURE.md"
SECTIONS = ["Question", "Options", "Measurements", "Decision", "Trade-offs", "Reconsider when"]
REQUIRED = {"Question", "Decision", "Reconsider when"}
STATUS = re.compile(r"^\*\*Status:\*\* (Accepted|Replaced) \d{4}-\d{2}", re.MULTILINE)
WORDS_OF_A_PAGE = 600
TWENTY_MINUTES = 4_000
"""Words, at 200 a minute."""


def title_of(page: Path) -> str:
    return page.read_text().partition("\n")[0].removeprefix("# ")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_decision_is_one_page_with_its_status_and_sections(page: Path) -> None:
    text = page.read_text()
    sections = re.findall(r"^## (.+)$", text, re.MULTILINE)

    assert title_of(page).startswith(f"{page.stem[:4]}: ")
    assert STATUS.search(text), "no status with a date"
    assert set(sections) >= REQUIRED
    assert sections == [name for name in SECTIONS if name in sections]
    assert len(text.split()) <= WORDS_OF_A_PAGE


def test_decisions_are_numbered_and_listed() -> None:
    assert [page.stem[:4] for page in PAGES] == [f"{n:04}" for n in range(1, len(PAGES) + 1)]

    rows = re.findall(
        r"^\| \[(\d{4})\]\((.+?)\) \| (.+?) \| (\w+) \|$",
        (FOLDER / "README.md").read_text(),
        re.MULTILINE,
    )
    assert [(name, f"{number}: {title}") for number, name, title, _ in rows] == [
        (page.name, title_of(page)) for page in PAGES
    ]
    for _, name, title, status in rows:
        is_revisited = "Revisited" in (FOLDER / name).read_text()
        assert (status == "revisited") is is_revisited, title


def test_a_newcomer_can_read_how_the_broker_works_in_twenty_minutes() -> None:
    text = ARCHITECTURE.read_text()
    how = text.partition("## 4. ")[0]

    assert len(how.split()) <= TWENTY_MINUTES
    assert "*Question:*" not in text, "decisions belong in docs/adr"
