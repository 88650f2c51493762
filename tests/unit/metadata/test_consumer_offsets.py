from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker_core.config.limits import LimitsConfig
from broker_core.errors import RequestRefusedError, StoreError
from broker_core.message import names
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


def test_nothing_is_written_if_nothing_moved(tmp_path: Path) -> None:
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


def test_topics_and_groups_link_to_each_other(tmp_path: Path) -> None:
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


def test_a_file_with_invalid_content_is_reported_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "consumerOffset.json").write_text('{"offsetTable":{"T@g":{"0":"x"}}}')

    with pytest.raises(StoreError, match=r"consumerOffset\.json"):
        make_offsets(tmp_path)


def make_bounded(directory: Path, known: set[tuple[str, str]], **limits: int) -> ConsumerOffsets:
    return ConsumerOffsets(
        Document(FileStorage(), directory / "consumerOffset.json"),
        lambda group, topic: (group, topic) in known,
        LimitsConfig(**limits),
    )


def test_the_total_number_of_offsets_is_limited_and_existing_ones_still_move(
    tmp_path: Path,
) -> None:
    known = {("g", "T"), ("g", "U")}
    offsets = make_bounded(tmp_path, known, consumer_offset_nums_max=12)
    offsets.commit("g", "T", 0, 1)
    offsets.commit("g", "T", 1, 1)

    for topic, queue_id in (("T", 2), ("U", 0)):
        with pytest.raises(RequestRefusedError, match="consumerOffsetNumsMax=12"):
            offsets.commit("g", topic, queue_id, 1)

    offsets.commit("g", "T", 1, 2)
    assert offsets.queues("g", "T") == {0: 1, 1: 2}
    assert offsets.topics_of("g") == {"T"}
    offsets.delete_topic("T")
    offsets.commit("g", "U", 0, 1)


def test_unknown_groups_and_topics_share_one_entry_and_take_no_space_from_known_ones(
    tmp_path: Path,
) -> None:
    known = {("g", "T")}
    offsets = make_bounded(tmp_path, known, unknown_offset_nums_max=22)
    offsets.commit("stranger", "T", 0, 1)
    offsets.commit("g", "unknown", 0, 1)

    for place in (("stranger", "U", 0), ("stranger", "T", 1)):
        with pytest.raises(RequestRefusedError, match="unknownOffsetNumsMax=22"):
            offsets.commit(*place, 1)

    offsets.commit("g", "T", 0, 1)
    known.add(("stranger", "T"))
    offsets.commit("stranger", "T", 1, 1)
    offsets.commit("stranger", "U", 0, 1)
    offsets.delete_group("stranger")
    offsets.commit("another", "V", 0, 1)


def test_the_offsets_in_the_file_count(tmp_path: Path) -> None:
    first = make_offsets(tmp_path)
    first.commit("g", "T", 0, 1)
    first.persist()
    offsets = make_bounded(tmp_path, {("g", "T")}, consumer_offset_nums_max=11)
    offsets.load()

    with pytest.raises(RequestRefusedError, match="consumerOffsetNumsMax=11"):
        offsets.commit("g", "T", 1, 1)


def test_the_brokers_own_offsets_always_fit(tmp_path: Path) -> None:
    offsets = make_bounded(tmp_path, set(), consumer_offset_nums_max=1, unknown_offset_nums_max=1)

    place = names.TRANSACTION_CONSUMER_GROUP, names.RMQ_SYS_TRANS_HALF_TOPIC, 0

    offsets.commit(*place, 7)

    assert offsets.query(*place) == 7


def test_a_truncated_log_lowers_later_offsets(tmp_path: Path) -> None:
    offsets = make_offsets(tmp_path)
    offsets.commit("g", "T", 0, 10)
    offsets.commit("g", "T", 1, 3)

    assert offsets.lower(lambda topic, queue_id: 5 if topic == "T" else 0) == 1

    assert offsets.queues("g", "T") == {0: 5, 1: 3}
    assert offsets.lower(lambda _topic, _queue_id: 5) == 0
