"""What documents name is there: files, tests, links."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.sources import ROOT, python_sources

DOCUMENTS = (
    *sorted(ROOT.glob("*.md")),
    ROOT / "broker_core" / "ARCHITECTURE.md",
    *sorted((ROOT / "docs").glob("*.md")),
)
CODE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"[\w./-]*\w\.(?:py|md)")
TEST = re.compile(r"(?P<file>(?:[\w./-]*/)?test_\w+\.py)?(?:::)?(?P<test>test_\w+)")
DEFINITION = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
# A document names what it speaks of from its own folder, or from one of these.
FROM = (ROOT, ROOT / "broker_core", ROOT / "tests")
# Files of examples, which the reader makes.
EXAMPLES = {"keyed_topics.py", "topic_counts.py"}


def prose(document: Path) -> str:
    return FENCE.sub("", document.read_text())


@cache
def basenames() -> frozenset[str]:
    return frozenset(Path(source.path).name for source in python_sources())


@cache
def names_by_file() -> dict[str, frozenset[str]]:
    """Return the names of the tests in each test file, by its path from the root."""
    return {
        source.path: frozenset(re.findall(DEFINITION, source.text))
        for source in python_sources()
        if source.path.startswith("tests/")
    }


def exists(document: Path, name: str) -> bool:
    """A bare file name may be any module's: the words around it say whose."""
    if "/" not in name and name in basenames():
        return True
    return any((folder / name).exists() for folder in (document.parent, *FROM))


def is_a_test(file: str | None, test: str) -> bool:
    return any(
        test in tests and (file is None or path.endswith("/" + file.removeprefix("tests/")))
        for path, tests in names_by_file().items()
    )


def wrong_in(document: Path) -> list[str]:
    text = prose(document)
    wrong = []
    for code in CODE.findall(text):
        if (named := TEST.fullmatch(code)) is not None:
            if not is_a_test(named["file"], named["test"]):
                wrong.append(f"no test {code}")
        elif FILE.fullmatch(code) and code not in EXAMPLES and not exists(document, code):
            wrong.append(f"no file {code}")
    links = [link for link in LINK.findall(text) if "://" not in link]
    there = {link for link in links if (document.parent / link).exists()}
    return wrong + [f"nothing behind the link {link}" for link in links if link not in there]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_it_names_is_there(document: Path) -> None:
    wrong = [f"{document.relative_to(ROOT)}: {what}" for what in wrong_in(document)]

    if wrong:
        pytest.fail("\n".join(["", *wrong]), pytrace=False)


def test_what_is_not_there_is_found(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(
        "`store/flush.py`, `store/no_such.py`, `unit/store/test_flush.py::test_no_such`, "
        "`test_flush.py::test_a_failed_flush_is_never_tried_again`, [x](no_such.md)\n"
        "```\n`inside/a_fence.py`\n```\n"
    )

    assert wrong_in(document) == [
        "no file store/no_such.py",
        "no test unit/store/test_flush.py::test_no_such",
        "nothing behind the link no_such.md",
    ]
