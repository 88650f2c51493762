"""Manual operations: rebuild, forget, verify."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from analytics.errors import LakeError, LakeStoppedError
from analytics.lake.parts import ERASED
from analytics.lake.repair import forget, rebuild, rebuilding, verify
from analytics.lake.rewriting import files_of
from analytics.lake.tables import MESSAGES
from tests.analytics.lake.lakes import Lake, put_offsets
from tests.analytics.store_builder import StoreBuilder

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store")


def lake_of(builder: StoreBuilder) -> Lake:
    return Lake(builder.root.parent / "lake", builder.root, batch_bytes=6000)


def test_after_a_rebuild_the_lake_matches_the_log(builder: StoreBuilder) -> None:
    builder.put_many(200).write()
    lake = lake_of(builder)
    lake.take_all()
    other = StoreBuilder(builder.root)
    for number in range(250):
        other.put("other", queue_id=number % 3, body=b"another body")
    other.write()
    with pytest.raises(LakeStoppedError):
        lake.ingest.batch()

    done = rebuild(lake.place, lake.source)
    lake.take_all()

    assert (done.log_from, done.rows) == (0, 200)
    assert lake.offsets() == put_offsets(other)
    assert {row[0] for row in lake.rows("topic")} == {"other"}


def test_a_rebuild_keeps_data_that_the_log_no_longer_has(builder: StoreBuilder) -> None:
    builder.put_many(300).write()
    lake = lake_of(builder)
    lake.take_all()
    begins = sorted(builder.files)[2]
    for start in sorted(builder.files)[:2]:
        builder.path_of(start).unlink()

    text = rebuilding(lake.place, lake.source)
    done = rebuild(lake.place, lake.source)
    after = lake.offsets()
    lake.take_all()

    assert text == done
    assert done.log_from == begins
    assert after == [at for at in put_offsets(builder) if at < begins]
    assert lake.offsets() == put_offsets(builder)


def test_a_rebuild_does_not_write_a_gap_twice(builder: StoreBuilder) -> None:
    builder.put_many(50)
    spoiled = builder.stored[20]
    builder.overwrite(spoiled.commit_log_offset, b"\xff" * 8)
    builder.write()
    lake = lake_of(builder)
    lake.take_all()
    known = lake.gaps()

    rebuild(lake.place, lake.source)
    between = lake.gaps()
    lake.take_all()

    assert len(known) == 1
    assert between == []
    assert lake.gaps() == known


def test_an_erased_message_still_counts_but_names_no_one(builder: StoreBuilder) -> None:
    builder.put_many(100)
    for properties in (
        b"KEYS\x01a secret-7\x02TAGS\x01paid\x02name\x01Ann",
        b"UNIQ_KEY\x01secret-7",
    ):
        builder.put("orders", properties=properties)
    builder.put("orders", properties=b"KEYS\x01secret-77")
    builder.write()
    lake = lake_of(builder)
    lake.take_all()
    kept = ("commit_log_offset", "topic", "tags", "born_host", "born_timestamp", "body_size")
    before = lake.rows(*kept)

    count = forget(lake.place, "secret-7")

    assert count == 2
    assert lake.rows(*kept) == before
    contents = lake.rows("commit_log_offset", *ERASED)
    assert [row[1:] for row in contents[100:102]] == [(None,) * len(ERASED)] * 2
    assert contents[102][1] == ["secret-77"]
    assert contents[99][2] == "FD00"
    kept_properties = [row[1] for row in lake.rows("commit_log_offset", "properties")[99:102]]
    assert kept_properties == [[("UNIQ_KEY", "FD00"), ("TAGS", "TagA")], [("TAGS", "paid")], []]
    assert forget(lake.place, "secret-7") == 0


def test_no_lake_file_contains_erased_data(builder: StoreBuilder) -> None:
    builder.put("orders", properties=b"KEYS\x01most-secret-key\x02note\x01most-secret-note")
    builder.write()
    lake = lake_of(builder)
    lake.take_all()

    forget(lake.place, "most-secret-key")

    (file,) = files_of(MESSAGES.existing(lake.place))
    there = list((builder.root.parent / "lake").rglob("part-*.parquet"))
    assert [path.name for path in there if "messages" in str(path)] == [file.path.split("/")[-1]]
    assert not any(b"most-secret" in path.read_bytes() for path in there)


def test_a_rebuild_does_not_bring_back_erased_data(builder: StoreBuilder) -> None:
    builder.put_many(10)
    builder.put("orders", properties=b"KEYS\x01secret-7")
    builder.write()
    lake = lake_of(builder)
    lake.take_all()
    forget(lake.place, "secret-7")

    rebuild(lake.place, lake.source)
    lake.take_all()

    assert lake.offsets() == put_offsets(builder)
    assert lake.rows("commit_log_offset", "keys", "properties")[-1][1:] == (None, [])


@pytest.mark.parametrize("key", ["", "  "])
def test_forgetting_needs_a_key(builder: StoreBuilder, key: str) -> None:
    with pytest.raises(LakeError, match="No key is given"):
        forget(lake_of(builder).place, key)


def test_forgetting_in_a_missing_lake_finds_nothing(builder: StoreBuilder) -> None:
    assert forget(lake_of(builder).place, "secret-7") == 0


def test_verify_finds_missing_and_repeated_messages(
    builder: StoreBuilder,
) -> None:
    builder.put_many(200).write()
    lake = lake_of(builder)
    lake.take_all()
    whole = verify(lake.place, lake.source)
    table = MESSAGES.open(lake.place)
    first, second, *_ = sorted(files_of(table), key=lambda file: file.least)
    MESSAGES.commit(lake.place, table, [], removed=[first.path])

    found = verify(lake.place, lake.source)

    assert whole.is_equal
    assert whole.messages == 200
    lost = [at for at in put_offsets(builder) if first.least <= at <= first.greatest]
    assert found.missing == lost
    assert found.repeated == 0
    assert second.rows


def test_verify_needs_a_lake(builder: StoreBuilder) -> None:
    builder.put_many(1).write()
    lake = lake_of(builder)

    with pytest.raises(LakeError, match="has no data from broker-a yet"):
        verify(lake.place, lake.source)


def test_verify_right_after_a_rebuild_names_missing_data(builder: StoreBuilder) -> None:
    builder.put_many(20).write()
    lake = lake_of(builder)
    lake.take_all()
    rebuild(lake.place, lake.source)

    with pytest.raises(LakeError, match=r"can't be compared yet.*rebuilt.*`manage.py lake ingest`"):
        verify(lake.place, lake.source)

    lake.take_all()
    assert verify(lake.place, lake.source).messages == 20
