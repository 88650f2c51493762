from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker_core.errors import StoreError
from broker_core.metadata.document import Document
from broker_core.storage import FileStorage

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def document(tmp_path: Path) -> Document:
    return Document(FileStorage(), tmp_path / "topics.json")


def test_a_fresh_store_has_no_document(document: Document) -> None:
    assert document.load() is None


def test_saved_data_is_loaded(document: Document) -> None:
    document.save({"offsetTable": {"T@g": {0: 7}}})

    assert document.load() == {"offsetTable": {"T@g": {"0": 7}}}


def test_the_former_text_stays_as_bak(document: Document) -> None:
    document.save({"a": 1})
    document.save({"a": 2})

    backup = document.path.with_name("topics.json.bak")
    assert Document(FileStorage(), backup).load() == {"a": 1}


@pytest.mark.parametrize("text", ["", "   ", '{"a":', "[1]", "\xff"])
def test_a_damaged_file_falls_back_to_bak_and_says_so(
    document: Document, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    document.save({"a": 1})
    document.save({"a": 2})
    document.path.write_text(text, encoding="latin-1")

    assert document.load() == {"a": 1}
    assert "metadata file damaged, using the backup" in caplog.text
    assert document.path.with_name("topics.json.damaged").read_text(encoding="latin-1") == text


def test_after_a_fallback_the_good_text_survives_the_next_save(document: Document) -> None:
    document.save({"a": 1})
    document.save({"a": 2})
    document.path.write_text("{")
    document.load()

    document.save({"a": 3})

    backup = document.path.with_name("topics.json.bak")
    assert Document(FileStorage(), backup).load() == {"a": 1}


def test_a_missing_file_falls_back_to_bak(document: Document) -> None:
    document.save({"a": 1})
    document.save({"a": 2})
    document.path.unlink()

    assert document.load() == {"a": 1}


def test_two_damaged_files_are_reported_in_one_sentence_and_stay(document: Document) -> None:
    document.path.write_text("{")
    document.path.with_name("topics.json.bak").write_text("{")

    with pytest.raises(StoreError, match=r"topics\.json is damaged .* and so is"):
        document.load()
    assert document.path.read_text() == "{"
