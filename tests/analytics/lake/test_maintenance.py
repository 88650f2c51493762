"""Maintenance: compaction, retention, and deletions."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from analytics.lake.maintenance import maintain
from analytics.lake.rewriting import files_of
from analytics.lake.tables import COMMITS_A_CHECKPOINT, MESSAGES
from analytics.lake.writer import ArrowWriter
from tests.analytics.lake.lakes import Lake, put_offsets
from tests.analytics.store_builder import START_MS, StoreBuilder

if TYPE_CHECKING:
    from pathlib import Path

DAY_MS = 86_400_000
FIRST_DAY = datetime.fromtimestamp(START_MS / 1000, UTC).date()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Three days, each in several files."""
    builder = StoreBuilder(tmp_path / "store")
    for number in range(300):
        at = START_MS + DAY_MS * (number // 100) + number
        builder.put(f"topic-{number % 7}", queue_id=number % 3, store_timestamp=at)
    builder.write()
    lake = Lake(tmp_path / "lake", builder.root, batch_bytes=4000)
    lake.take_all()
    assert lake.offsets() == put_offsets(builder)
    return lake


def files_by_day(lake: Lake) -> dict[date, int]:
    counted: dict[date, int] = {}
    for file in files_of(MESSAGES.existing(lake.place)):
        counted[file.day] = counted.get(file.day, 0) + 1
    return counted


def test_a_closed_day_becomes_one_file_by_topic_and_offset(lake: Lake) -> None:
    rows = lake.rows("commit_log_offset", "topic", "properties", "store_timestamp")
    before = files_by_day(lake)

    done = maintain(lake.place, FIRST_DAY + timedelta(days=2), ArrowWriter())

    assert (MESSAGES.name, FIRST_DAY) in done.merged
    after = files_by_day(lake)
    assert after == {**before, FIRST_DAY: 1}
    assert before[FIRST_DAY] > 1
    assert lake.rows("commit_log_offset", "topic", "properties", "store_timestamp") == rows


def test_a_compacted_file_is_in_order(lake: Lake) -> None:
    maintain(lake.place, FIRST_DAY + timedelta(days=9), ArrowWriter())

    for file in files_of(MESSAGES.existing(lake.place)):
        topics, offsets = lake.column(file, "topic"), lake.column(file, "commit_log_offset")
        pairs = list(zip(topics, offsets, strict=True))
        assert pairs == sorted(pairs)
        assert len(pairs) == 100


def test_a_large_day_becomes_several_files(lake: Lake) -> None:
    known = lake.offsets()

    maintain(lake.place, FIRST_DAY + timedelta(days=9), ArrowWriter(), file_bytes=12_000)

    assert lake.offsets() == known


def test_maintaining_twice_changes_nothing(lake: Lake) -> None:
    maintain(lake.place, FIRST_DAY + timedelta(days=9), ArrowWriter())
    version = MESSAGES.existing(lake.place).version()

    done = maintain(lake.place, FIRST_DAY + timedelta(days=9), ArrowWriter())

    assert done.merged == []
    assert done.is_done
    assert files_by_day(lake)[FIRST_DAY] == 1
    assert MESSAGES.existing(lake.place).file_uris()
    assert version <= MESSAGES.existing(lake.place).version()


def test_days_beyond_the_retention_are_dropped_whole(lake: Lake) -> None:
    done = maintain(lake.place, FIRST_DAY + timedelta(days=5), ArrowWriter(), bronze_days=4)

    assert done.dropped == [FIRST_DAY]
    assert sorted(files_by_day(lake)) == [
        FIRST_DAY + timedelta(days=1),
        FIRST_DAY + timedelta(days=2),
    ]
    assert lake.ingest.batch() is None


def test_unreferenced_files_are_deleted_after_a_day(lake: Lake) -> None:
    folder = next((lake.directory / "bronze" / "messages").glob("day=*"))
    old, young = folder / "part-old.parquet", folder / "part-young.parquet"
    for path in (old, young):
        path.write_bytes(b"PAR1")
    two_days_ago = datetime.now(UTC).timestamp() - 2 * 86_400
    os.utime(old, (two_days_ago, two_days_ago))
    known = lake.offsets()

    maintain(lake.place, FIRST_DAY, ArrowWriter())

    assert not old.exists()
    assert young.exists()
    assert lake.offsets() == known


def test_a_checkpoint_follows_a_fixed_number_of_commits(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store").put_many(COMMITS_A_CHECKPOINT + 5)
    builder.write()
    lake = Lake(tmp_path / "lake", builder.root, batch_bytes=1)

    lake.take_all()

    log = tmp_path / "lake" / "bronze" / "messages" / "_delta_log"
    assert list(log.glob("*.checkpoint.parquet"))
    assert lake.offsets() == put_offsets(builder)
