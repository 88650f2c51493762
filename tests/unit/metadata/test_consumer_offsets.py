from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker_core.errors import StoreError
from broker_core.metadata.consumer_offsets import ConsumerOffsets
from broker_core.metadata.document import Document
from broker_core.storage import FileStorage

if TYPE_CHECKING:
    from pathlib import Path


def make_offsets(directory: Path) -> ConsumerOffsets:
    offsets = ConsumerOffsets(Document(FileStorage(), directory / "consumerOffset.json"))
    offsets.load()
    return offsets


def test_an_offset_that_was_never_committed_is_minus_one(tmp_path: Path) -> None:
    assert make_offsets(tmp_path).query("g", "T", 0) == -1


def test_offsets_survive_a_restart_in_rocketmqs_text(tmp_path: Path) -> None:
    offsets = make_offsets(tmp_path)
    offsets.commit("g", "T", 1, 25)
    offsets.commit("g", "T", 0, 7)

    offsets.persist()

    text = (tmp_path / "consumerOffset.json").read_text()
    assert text == '{\n\t"offsetTable":{\n\t\t"T@g":{0:7,1:25\n\t\t}\n\t}\n}'
    assert make_offsets(tmp_path).queues("g", "T") == {0: 7, 1: 25}


def test_nothing_is_written_when_nothing_moved(tmp_path: Path) -> None:
    offsets = make_offsets(tmp_path)
    offsets.commit("g", "T", 0, 7)
    offsets.persist()
    (tmp_path / "consumerOffset.json").unlink()

    offsets.commit("g", "T", 0, 7)
    offsets.persist()

    assert not (tmp_path / "consumerOffset.json").exists()


def test_a_smaller_offset_is_a_reset_and_is_kept(tmp_path: Path) -> None:
    offsets = make_offsets(tmp_path)
    offsets.commit("g", "T", 0, 7)
    offsets.commit("g", "T", 0, 3)

    assert offsets.query("g", "T", 0) == 3


def test_topics_and_groups_find_each_other(tmp_path: Path) -> None:
    offsets = make_offsets(tmp_path)
    offsets.commit("g", "T", 0, 1)
    offsets.commit("g", "U", 0, 1)
    offsets.commit("h", "T", 0, 1)

    assert offsets.topics_of("g") == {"T", "U"}
    assert offsets.groups_of("T") == {"g", "h"}


def test_deleting_a_group_leaves_the_others(tmp_path: Path) -> None:
    offsets = make_offsets(tmp_path)
    offsets.commit("g", "T", 0, 1)
    offsets.commit("h", "T", 0, 2)

    offsets.delete_group("g")

    assert offsets.query("g", "T", 0) == -1
    assert offsets.query("h", "T", 0) == 2


def test_a_file_with_nonsense_in_it_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "consumerOffset.json").write_text('{"offsetTable":{"T@g":{"0":"x"}}}')

    with pytest.raises(StoreError, match=r"consumerOffset\.json"):
        make_offsets(tmp_path)
