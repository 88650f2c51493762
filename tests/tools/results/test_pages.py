"""The marked parts of pages show exactly the figures of docs/results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.support.sources import ROOT
from tools.results import documents, pages, picture
from tools.results.documents import ROWS, WHOLE, Comparison, FaultRun
from tools.results.tables import PARTS

if TYPE_CHECKING:
    from pathlib import Path

DOCS = ROOT / "docs"
PAGES = [page for page in pages.pages(DOCS) if pages.names_in(page.read_text())]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_shows_the_figures_of_the_results(page: Path) -> None:
    text = page.read_text()

    assert pages.rendered(text, DOCS) == text, "run python -m tools.results"


def test_every_result_is_on_one_page_and_readme_has_its_own() -> None:
    names = [name for page in PAGES for name in pages.names_in(page.read_text())]

    assert sorted(names) == sorted(PARTS)
    assert pages.names_in((ROOT / "README.md").read_text()) == ["readme"]


def test_the_picture_shows_the_figures_of_the_results() -> None:
    found = documents.read(DOCS, "comparison", Comparison)

    assert picture.drawn(found) == (DOCS / picture.PLACE).read_text()


def test_every_results_file_has_a_tool_that_writes_it() -> None:
    names = {path.stem for path in (DOCS / documents.FOLDER).glob("*.json")}

    assert names == {*ROWS, *WHOLE}
    for name, kind in WHOLE.items():
        documents.read(DOCS, name, kind)
    for name, (kind, _) in ROWS.items():
        assert documents.read_rows(DOCS, name, kind)


def test_an_undefined_field_is_rejected(tmp_path: Path) -> None:
    documents.path_of(tmp_path, "faults").parent.mkdir()
    documents.path_of(tmp_path, "faults").write_text('[{"fualt": "kill"}]')

    with pytest.raises(msgspec.ValidationError, match="fualt"):
        documents.read_rows(tmp_path, "faults", FaultRun)


def fault_run(commit: str, seed: int, lost: int = 0) -> FaultRun:
    return FaultRun(
        date="2026-11-28",
        commit=commit,
        machine="2 cores",
        command="python -m tools.faults chaos",
        fault="chaos",
        variant="",
        broker="ours",
        cycles=10,
        lost=lost,
        seed=seed,
    )


def test_a_run_replaces_runs_of_older_commits_and_its_own_of_the_same_seed(
    tmp_path: Path,
) -> None:
    documents.record(tmp_path, "faults", [fault_run("a", 1), fault_run("a", 2)])
    assert len(documents.read_rows(tmp_path, "faults", FaultRun)) == 2

    documents.record(tmp_path, "faults", [fault_run("b", 3)])
    documents.record(tmp_path, "faults", [fault_run("b", 3, lost=1)])

    assert documents.read_rows(tmp_path, "faults", FaultRun) == [fault_run("b", 3, lost=1)]


def test_a_later_runs_loss_changes_the_page(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (tmp_path / "README.md").write_text("nothing is marked here\n")
    page = docs / "reliability.md"
    page.write_text("<!-- result: faults -->\nold\n<!-- end of result -->\n")
    documents.record(docs, "faults", [fault_run("a", 1, lost=7)])

    assert pages.render(docs) == [page]
    assert "| Trebuchet | 10 | - | 7 |" in page.read_text()
