"""The documents' pictures match those of `python -m tools.tour`, and are small."""

from __future__ import annotations

import re

import pytest

from tests.support.sources import ROOT
from tools.tour.pictures import BYTES_MAX, DOCS, PICTURES, WIDTH

PICTURE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")
SHOWING = (ROOT / "README.md", DOCS / "tour.md")
PNG_HEAD = b"\x89PNG\r\n\x1a\n"


def test_documents_show_exactly_the_pictures_that_the_command_takes() -> None:
    shown = {
        (document.parent / name).resolve()
        for document in SHOWING
        for name in PICTURE.findall(document.read_text())
    }

    assert shown == {DOCS / each.path for each in PICTURES}
    assert all(PICTURE.search(document.read_text()) for document in SHOWING)


def test_no_other_picture_is_in_the_folder() -> None:
    # The benchmarks draw theirs as SVG.
    stored = set((DOCS / "images").rglob("*.png"))

    assert stored == {DOCS / each.path for each in PICTURES}


@pytest.mark.parametrize("picture", PICTURES, ids=lambda each: each.path)
def test_a_picture_has_the_commands_size_and_is_small_to_clone(picture) -> None:
    data = (DOCS / picture.path).read_bytes()

    assert data.startswith(PNG_HEAD)
    size = tuple(int.from_bytes(data[at : at + 4]) for at in (16, 20))
    assert size == (WIDTH, picture.height)
    assert len(data) <= BYTES_MAX
