"""Docstrings, comments and documents read like those of well-written packages.

The limit holds for each part of the project as a whole.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from tests.support import prose
from tests.support.sources import ROOT

RATE_MAX = 1.0
"""Constructions per 1,000 words."""
PUBLISHED = ("websockets", "hypothesis")
SITE_PACKAGES = Path(sysconfig.get_path("purelib"))
PARTS = {
    part: (part,) for part in ("broker_core", "console", "analytics", "deploy", "tests", "tools")
} | {"docs": ("docs", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")}


@pytest.mark.parametrize("package", PUBLISHED)
def test_the_check_passes_for_a_published_package(package: str) -> None:
    measured = prose.measure(SITE_PACKAGES, prose.files_below(SITE_PACKAGES / package))

    assert measured.words > 10_000
    assert measured.rate <= RATE_MAX, "\n".join(map(str, measured.hits))


def test_the_check_finds_each_construction() -> None:
    sentences = (
        "It has none that fits.",
        "This is no queue.",
        "It is served no more.",
        "Its link is old.",
        "What was asked counts.",
        "It returns what the broker sent.",
        "Whoever reads it, reads it anew.",
        "A log lies in a folder.",
        "It came to be there.",
        "A member is told.",
        "An offset is taken.",
        "It knows nothing.",
        "An alert is seen to.",
        "A slave ignores those that are late.",
    )

    for sentence, construction in zip(sentences, prose.NAMES, strict=True):
        assert construction in prose.constructions_in(sentence)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_respects_the_limit(part: str) -> None:
    files = (file for name in PARTS[part] for file in prose.files_below(ROOT / name))

    measured = prose.measure(ROOT, files)

    assert measured.words
    assert measured.rate <= RATE_MAX, "\n".join(["", *map(str, measured.hits)])
