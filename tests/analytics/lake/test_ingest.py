"""Ingest: each message once, whichever process dies; and the reasons for stopping."""

from __future__ import annotations

import errno
import itertools
import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from analytics.errors import LakeBusyError, LakeError, LakeStoppedError, ReportError
from analytics.lake.ingest import Ingest, Source
from analytics.lake.place import STAGED_SUFFIX, LakePlace
from analytics.lake.repair import forget
from analytics.lake.rewriting import files_of
from analytics.lake.tables import MESSAGES
from analytics.store import log_files
from tests.analytics.lake.lakes import Lake, put_offsets
from tests.analytics.store_builder import START_MS, StoreBuilder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store")


def lake_of(builder: StoreBuilder, *, batch_bytes: int = 1 << 26) -> Lake:
    return Lake(builder.root.parent / "lake", builder.root, batch_bytes=batch_bytes)


def test_each_message_is_in_the_lake_once_with_its_content(builder: StoreBuilder) -> None:
    properties = b"KEYS\x01k1 k2\x02UNIQ_KEY\x01FD01\x02TAGS\x01paid"
    builder.put_many(200)
    text = builder.put("orders", queue_id=2, properties=properties, reconsume_times=3)
    builder.write()
    lake = lake_of(builder)

    lake.take_all()

    assert lake.offsets() == put_offsets(builder)
    last = lake.rows(
        *("commit_log_offset", "broker", "topic", "queue_id", "keys", "tags", "uniq_key"),
        *("properties", "store_timestamp", "reconsume_times", "store_size", "body", "day"),
    )[-1]
    stored_at = datetime.fromtimestamp(text.store_timestamp / 1000, UTC)
    assert last == (
        *(text.commit_log_offset, "broker-a", "orders", 2, ["k1", "k2"], "paid", "FD01"),
        [("KEYS", "k1 k2"), ("UNIQ_KEY", "FD01"), ("TAGS", "paid")],
        *(stored_at, 3, text.size, None, stored_at.date()),
    )


def test_the_brokers_own_entries_are_left_out(builder: StoreBuilder) -> None:
    builder.put("orders")
    for topic in ("RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC"):
        builder.put(topic)
    builder.write()
    lake = lake_of(builder)

    lake.take_all()

    assert [row[0] for row in lake.rows("topic")] == ["orders"]


def test_a_batch_starts_where_the_last_one_ended(builder: StoreBuilder) -> None:
    builder.put_many(300).write()
    lake = lake_of(builder, batch_bytes=6000)

    batches = lake.take_all()

    assert len(batches) > 4
    assert all(
        one.commit_log_to == after.commit_log_from for one, after in itertools.pairwise(batches)
    )
    assert lake.offsets() == put_offsets(builder)
    builder.put_many(10).write()
    assert [batch.rows for batch in lake.take_all()] == [10]
    assert lake.ingest.batch() is None


def test_unread_expired_data_is_a_gap(builder: StoreBuilder) -> None:
    builder.put_many(200).write()
    lake = lake_of(builder)
    taken_to = lake.take_all()[-1].commit_log_to
    known = put_offsets(builder)
    builder.put_many(300).write()
    starts = sorted(builder.files)
    begins = next(start for start in starts[1:] if start > taken_to)
    for start in starts:
        if start < begins:
            builder.path_of(start).unlink()

    lake.take_all()

    assert lake.gaps() == [(taken_to, begins, "expired before the lake read it")]
    later = [at for at in put_offsets(builder) if at >= begins]
    assert later
    assert lake.offsets() == known + later


def test_a_log_that_lost_its_end_stops_the_lake(builder: StoreBuilder) -> None:
    builder.put_many(30).write()
    lake = lake_of(builder)
    lake.take_all()
    before = lake.offsets()
    lost = builder.stored[-3]
    builder.overwrite(
        lost.commit_log_offset, bytes(3 * 4096)[: builder.position - lost.commit_log_offset]
    )
    builder.write(queues=False)

    with pytest.raises(LakeStoppedError, match=r"ends before \d+.*lake rebuild --broker broker-a"):
        lake.ingest.batch()

    assert lake.offsets() == before


def test_new_records_short_of_the_watermark_before_old_bytes_stop_the_lake(
    builder: StoreBuilder,
) -> None:
    builder.put_many(200).write()
    lake = lake_of(builder)
    lake.take_all()
    # After truncation the broker overwrites its data: here one record, then the old bytes.
    other = StoreBuilder(builder.root)
    other.put_many(185)
    other.put("orders", body=b"another, and longer than the one that was here")
    for start, content in other.files.items():
        used = max(0, min(other.position - start, len(content)))
        builder.files[start][:used] = content[:used]
    builder.units = other.units
    builder.write()

    with pytest.raises(LakeStoppedError, match="ends before"):
        lake.ingest.batch()


def test_other_bytes_before_the_watermark_stop_the_lake(tmp_path: Path) -> None:
    one = StoreBuilder(tmp_path / "store").put_many(50)
    one.write()
    lake = Lake(tmp_path / "lake", one.root)
    lake.take_all()
    other = StoreBuilder(one.root)
    for number, stored in enumerate(one.stored):
        other.put(stored.topic, queue_id=number % 3, body=stored.body.replace(b"0", b"x"))
    other.put_many(50).write()

    with pytest.raises(LakeStoppedError, match="other bytes before"):
        lake.ingest.batch()


def test_unflushable_bytes_are_not_accepted(
    builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder.put_many(10).write()
    lake = lake_of(builder)

    def refuse(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", refuse)
        with pytest.raises(LakeError, match="couldn't be flushed"):
            lake.ingest.batch()

    assert lake.offsets() == []
    lake.take_all()
    assert lake.offsets() == put_offsets(builder)


def test_a_half_written_record_is_not_read_before_it_is_whole(builder: StoreBuilder) -> None:
    builder.put_many(10)
    torn = builder.put("orders", body=b"x" * 100)
    builder.overwrite(torn.commit_log_offset + 60, bytes(40))
    builder.write()
    lake = lake_of(builder)
    lake.take_all()
    assert lake.offsets() == put_offsets(builder)[:-1]

    builder.stored.pop()
    builder.position = torn.commit_log_offset
    builder.put("orders", body=b"x" * 100)
    builder.write()
    lake.take_all()

    assert lake.offsets() == put_offsets(builder)
    assert lake.gaps() == []


def test_a_commit_fails_after_a_concurrent_commit(builder: StoreBuilder) -> None:
    builder.put_many(10).write()
    lake = lake_of(builder)
    stale = MESSAGES.open(lake.place)
    lake.take_all()

    with pytest.raises(LakeBusyError):
        MESSAGES.commit(lake.place, stale, [], states={"bronze-broker-a": 0})

    assert lake.ingest.batch() is None


def elsewhere(work: Callable[[], object]) -> None:
    """Run something as another process would, because a lock belongs to a thread."""
    with ThreadPoolExecutor(1) as others:
        others.submit(work).result()


def test_a_lake_in_use_is_busy(builder: StoreBuilder) -> None:
    builder.put_many(1).write()
    lake = lake_of(builder)

    def enter() -> None:
        with lake.place.locked(wait_seconds=0):
            pass

    with lake.place.locked(), pytest.raises(LakeBusyError, match="Another process"):
        elsewhere(enter)
    elsewhere(enter)


def test_brokers_write_their_files_at_the_same_time(builder: StoreBuilder, tmp_path: Path) -> None:
    builder.put_many(300).write()
    other = StoreBuilder(tmp_path / "other").put_many(200, ("other",))
    other.write()
    lake = lake_of(builder)
    source = Source("broker-b", other.root, None, lake.source.rules)

    def on_step(step: str) -> None:
        if step == "written":
            # The files of this batch exist; another broker's whole batch arrives before the commit.
            elsewhere(lambda: Ingest(lake.place, source).batch())

    batches = Ingest(lake.place, lake.source, observer=on_step).batch()

    assert batches is not None
    assert batches.rows == 300
    rows = lake.rows("commit_log_offset", "broker")
    assert Counter(row[1] for row in rows) == {"broker-a": 300, "broker-b": 200}


def test_a_batch_written_during_the_erasure_of_its_content_is_rewritten(
    builder: StoreBuilder,
) -> None:
    builder.put("orders", properties=b"KEYS\x01secret-7")
    builder.write()
    lake = lake_of(builder)
    lake.take_all()
    builder.put("orders", properties=b"KEYS\x01other")
    builder.write()

    def on_step(step: str) -> None:
        if step == "written":
            elsewhere(lambda: forget(lake.place, "secret-7"))

    with pytest.raises(LakeBusyError, match="written again"):
        Ingest(lake.place, lake.source, observer=on_step).batch()

    assert not list(lake.directory.rglob(f"*{STAGED_SUFFIX}"))
    lake.take_all()
    assert [row[1] for row in lake.rows("commit_log_offset", "keys")] == [None, ["other"]]


@pytest.mark.parametrize("left", [b"", b'{"commitInfo":{"timest', bytes(300)])
def test_a_commit_half_written_before_a_power_cut_is_repeated(
    builder: StoreBuilder, left: bytes
) -> None:
    builder.put_many(100).write()
    lake = lake_of(builder, batch_bytes=4000)
    lake.ingest.batch()
    lake.ingest.batch()
    log = lake.place.table(MESSAGES.name) + "/_delta_log"
    last = max(name for name in os.listdir(log) if name.endswith(".json"))  # noqa: PTH208
    with open(f"{log}/{last}", "wb") as file:  # noqa: PTH123
        file.write(left)

    lake.take_all()

    assert lake.offsets() == put_offsets(builder)


def test_a_table_without_a_newer_column_gets_it(builder: StoreBuilder) -> None:
    builder.put_many(5).write()
    lake = lake_of(builder)
    older = pa.schema([field for field in MESSAGES.schema if field.name != "store_host"])
    DeltaTable.create(lake.place.table(MESSAGES.name), older, partition_by=["day"])

    lake.take_all()

    assert {row[0] for row in lake.rows("store_host")} == {"127.0.0.1:10911"}


def test_readers_find_rows_by_columns_without_statistics(builder: StoreBuilder) -> None:
    builder.put_many(20).write()
    lake = lake_of(builder)
    lake.take_all()

    rows = MESSAGES.existing(lake.place).to_pyarrow_dataset()

    assert rows.count_rows(filter=pc.field("uniq_key") == "FD00") == 20
    assert rows.count_rows(filter=pc.field("topic") == "unknown") == 0


def test_a_foreign_table_is_rejected(builder: StoreBuilder) -> None:
    builder.put_many(5).write()
    lake = lake_of(builder)
    other = pa.schema([("day", pa.date32()), ("topic", pa.int64())])
    DeltaTable.create(lake.place.table(MESSAGES.name), other, partition_by=["day"])

    with pytest.raises(LakeError, match="the column topic"):
        lake.ingest.batch()


def test_a_message_with_an_invalid_time_is_a_gap(builder: StoreBuilder) -> None:
    wrong = builder.put("orders", store_timestamp=2**62)
    builder.put("orders", store_timestamp=START_MS)
    builder.write()
    lake = lake_of(builder)

    lake.take_all()

    assert lake.gaps() == [(0, wrong.size, "the store timestamp isn't a date")]
    assert lake.offsets() == [wrong.size]


def test_a_missing_store_is_reported_in_one_sentence(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", tmp_path / "nowhere")

    with pytest.raises(ReportError, match="No store at"):
        lake.ingest.batch()


def test_an_empty_store_is_not_a_batch(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    lake = Lake(tmp_path / "lake", tmp_path / "store")

    assert lake.ingest.batch() is None
    assert lake.offsets() == []


def test_data_read_in_small_pieces_is_written_in_large_groups(
    builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "CHUNK_BYTES", 4096)
    monkeypatch.setattr("analytics.lake.files.ROWS_A_GROUP", 100)
    builder.put_many(450).write()
    lake = lake_of(builder)

    lake.take_all()

    groups = groups_of(lake)
    assert sum(groups) == 450
    assert all(100 <= count < 150 for count in groups[:-1])


def test_rows_waiting_for_their_group_are_limited(
    builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "CHUNK_BYTES", 4096)
    monkeypatch.setattr("analytics.lake.files.WAITING_BYTES_MAX", 1)
    builder.put_many(450).write()
    lake = lake_of(builder)

    lake.take_all()

    assert max(groups_of(lake)) < 50
    assert len(set(lake.offsets())) == 450


def groups_of(lake: Lake) -> list[int]:
    """Return the number of rows in the groups of the only file."""
    (file,) = files_of(MESSAGES.open(lake.place))
    path = lake.place.path_of(MESSAGES.name, file.path)
    metadata = pq.ParquetFile(path).metadata
    return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]


def test_checking_an_idle_log_takes_milliseconds(builder: StoreBuilder) -> None:
    for number in range(400):
        builder.put(f"topic-{number % 100}", queue_id=number % 4)
    builder.write()
    lake = lake_of(builder)
    lake.take_all()
    look = lake.ingest.look()
    used = []

    for _ in range(5):
        started = time.process_time()
        look = lake.ingest.look(look)
        used.append(time.process_time() - started)

    assert look.pending == 0
    assert min(used) < 0.05


@pytest.mark.parametrize(
    ("uri", "sentence"),
    [
        ("", "isn't a directory"),
        ("gs://bucket/lake", "isn't a directory"),
        ("s3:///lake", "has no bucket"),
        ("s3a://bucket/lake", "--state"),
    ],
)
def test_an_invalid_place_is_rejected(uri: str, sentence: str) -> None:
    with pytest.raises(LakeError, match=sentence):
        LakePlace.of(uri, None, {})
