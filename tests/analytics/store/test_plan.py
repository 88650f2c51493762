"""The scope of a plan: the readable end, the splits, the requested time."""

from __future__ import annotations

import os
import struct
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from analytics.errors import ReportError
from analytics.store import consume_queues, log_files, plan as plan_module
from analytics.store.decode import FILE_GONE, RowFilter
from analytics.store.plan import CLOCK_STEP_MS_MAX, SPLIT_BYTES_DEFAULT
from analytics.store.reader import StoreReader
from broker_core.formats import cq_unit, paths, record
from tests.analytics.store.store_reads import (
    OFFSETS,
    damages,
    expected,
    offsets,
    read,
)
from tests.analytics.store_builder import (
    FILE_BYTES,
    START_MS,
    V4_HOST,
    StoreBuilder,
)

if TYPE_CHECKING:
    import random
    from contextlib import AbstractContextManager
    from pathlib import Path


@pytest.fixture
def small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "SPLIT_BYTES_MIN", 1)


@pytest.mark.parametrize("split_bytes", [1, 500, 3000, 10**9])
@pytest.mark.usefixtures("small_splits")
def test_splits_cut_the_log_without_gap_or_overlap(tmp_path: Path, split_bytes: int) -> None:
    builder = StoreBuilder(tmp_path).put_many(400)
    reader = StoreReader(builder.write(), split_bytes=split_bytes)

    plan = reader.plan()

    starts = {one.commit_log_offset for one in builder.stored}
    assert plan.splits[0].commit_log_from == plan.log_from
    assert plan.splits[-1].commit_log_to == plan.log_to
    assert all(a.commit_log_to == b.commit_log_from for a, b in pairwise(plan.splits))
    assert all(split.commit_log_from in starts for split in plan.splits)
    assert [row["commit_log_offset"] for row in read(reader, plan)] == expected(builder)


def test_two_gigabytes_in_small_sparse_files_can_be_read(tmp_path: Path) -> None:
    file_bytes, files = 1 << 20, 2_100
    builder = StoreBuilder(tmp_path, file_bytes=4096)
    one = builder.put()
    head = bytearray(builder.files[0][: one.size])
    (tmp_path / "commitlog").mkdir()
    for number in range(files):
        struct.pack_into(">q", head, record.COMMIT_LOG_OFFSET_POSITION, number * file_bytes)
        path = tmp_path / "commitlog" / paths.offset_file_name(number * file_bytes)
        path.write_bytes(head + record.BLANK.pack(file_bytes - one.size, record.BLANK_MAGIC))
        os.truncate(path, file_bytes)

    reader = StoreReader(tmp_path)
    plan = reader.plan()

    assert [row["commit_log_offset"] for row in read(reader, plan)] == [
        number * file_bytes for number in range(files)
    ]
    assert len(plan.shares(SPLIT_BYTES_DEFAULT)) == -(-files // 64)


def test_preallocated_files_contain_no_messages(tmp_path: Path, queues: bool) -> None:
    builder = StoreBuilder(tmp_path).put_many(10).add_zero_file().add_zero_file()
    root = builder.write(queues=queues)

    plan = StoreReader(root).plan()

    assert plan.log_to == builder.position
    assert plan.tail is None
    assert offsets(root) == expected(builder)
    assert not damages(root)


def test_a_file_may_be_full_before_the_next_one_has_a_record(tmp_path: Path, queues: bool) -> None:
    builder = StoreBuilder(tmp_path)
    while len(builder.files) == 1:
        builder.put()
    last = builder.stored.pop()
    builder.files[FILE_BYTES] = bytearray(FILE_BYTES)
    for units in builder.units.values():
        del units[-cq_unit.UNIT_SIZE :]
    root = builder.write(queues=queues)

    plan = StoreReader(root).plan()

    assert plan.log_to == last.commit_log_offset == FILE_BYTES
    assert offsets(root) == expected(builder)
    assert not damages(root)


def test_units_of_records_that_never_reached_the_log_are_ignored(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(30)
    lost = builder.stored[20]
    builder.overwrite(lost.commit_log_offset, bytes(builder.position - lost.commit_log_offset))
    root = builder.write()

    plan = StoreReader(root).plan()

    assert plan.log_to == lost.commit_log_offset
    assert offsets(root) == expected(builder)[:20]
    assert not damages(root)


def test_data_appended_after_the_plan_is_not_read(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(10)
    reader = StoreReader(builder.write())
    plan = reader.plan()
    before = expected(builder)

    builder.put_many(300)
    builder.write()

    assert [row["commit_log_offset"] for row in read(reader, plan)] == before


def test_a_plan_with_fixed_offsets_gives_the_same_picture_later(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(10)
    reader = StoreReader(builder.write())
    first = reader.plan()
    builder.put_many(300)
    builder.write()

    again = StoreReader(tmp_path).plan(from_offset=first.log_from, to_offset=first.log_to)

    assert again.splits == first.splits


def test_queues_longer_than_one_file_and_fillers_are_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_module, "SPLIT_BYTES_MIN", 1)
    builder = StoreBuilder(tmp_path, queue_file_units=7)
    for queue_id in (0, 1):
        filler = cq_unit.FILLER * 3 if queue_id else b""
        builder.units["orders", queue_id] = bytearray(filler)
    for number in range(300):
        builder.put(queue_id=number % 2)
    reader = StoreReader(builder.write(), split_bytes=1000)

    plan = reader.plan()

    assert len(plan.splits) > 20
    assert plan.log_to == builder.position
    assert [row["commit_log_offset"] for row in read(reader, plan)] == expected(builder)


def test_only_files_near_the_requested_time_are_read(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    hour = 3_600_000
    for number in range(300):
        builder.put(store_timestamp=START_MS + number * hour // 10)
    reader = StoreReader(builder.write())
    from_ms, to_ms = START_MS + 10 * hour, START_MS + 11 * hour
    expected_offsets = [
        one.commit_log_offset for one in builder.stored if from_ms <= one.store_timestamp < to_ms
    ]

    plan = reader.plan(from_ms=from_ms, to_ms=to_ms)

    rows = RowFilter(from_ms=from_ms, to_ms=to_ms)
    found = [
        at
        for split in plan.splits
        for batch in reader.read(split, OFFSETS, rows)
        for at in batch["commit_log_offset"].to_pylist()
    ]
    assert found == expected_offsets
    assert len(plan.splits) == 1
    assert plan.skipped_bytes == builder.position - plan.split_bytes
    assert (plan.log_from, plan.log_to) == (0, builder.position)


def test_a_small_clock_step_back_hides_nothing(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    for number in range(200):
        back = CLOCK_STEP_MS_MAX - 1000 if number > 100 else 0
        builder.put(store_timestamp=START_MS + number - back)
    reader = StoreReader(builder.write())
    to_ms = START_MS - 1

    plan = reader.plan(to_ms=to_ms)

    rows = [
        at
        for split in plan.splits
        for batch in reader.read(split, OFFSETS, RowFilter(to_ms=to_ms))
        for at in batch["commit_log_offset"].to_pylist()
    ]
    assert rows == expected(builder)[101:]


@pytest.mark.parametrize("made", ["nothing", "commitlog", "zero file", "empty file"])
def test_a_store_without_messages_is_not_an_error(tmp_path: Path, made: str) -> None:
    if made != "nothing":
        (tmp_path / "commitlog").mkdir()
    if made.endswith("file"):
        content = bytes(FILE_BYTES) if made == "zero file" else b""
        (tmp_path / "commitlog" / paths.offset_file_name(0)).write_bytes(content)

    # The appliance always passes the log's path.
    for report in (None, tmp_path / "commitlog"):
        plan = StoreReader(tmp_path, commit_log_path=report).plan()

        assert (plan.splits, plan.log_from, plan.log_to) == ([], 0, 0)
        assert plan.tail is None


def test_a_missing_store_is_reported_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"No store at .*gone\. The directory doesn't exist"):
        StoreReader(tmp_path / "gone").plan()


def test_a_missing_commit_log_elsewhere_is_reported_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"No store at .*elsewhere\. The directory doesn't exist"):
        StoreReader(tmp_path, commit_log_path=tmp_path / "elsewhere").plan()


def test_a_file_in_place_of_a_store_is_reported_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "commitlog").write_text("")

    with pytest.raises(ReportError, match=r"commitlog can't be read: Not a directory\."):
        StoreReader(tmp_path).plan()


def test_a_commit_log_elsewhere_is_read(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store").put_many(30)
    builder.write()
    (tmp_path / "store" / "commitlog").rename(tmp_path / "log")
    reader = StoreReader(tmp_path / "store", commit_log_path=tmp_path / "log")

    assert [row["commit_log_offset"] for row in read(reader, reader.plan())] == expected(builder)


def test_stray_entries_in_the_log_directory_are_ignored(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(30)
    root = builder.write()
    (root / "commitlog" / "notes.txt").write_text("hello")
    (root / "commitlog" / paths.offset_file_name(10 * FILE_BYTES)).mkdir()

    assert offsets(root) == expected(builder)


def test_a_log_may_start_anywhere(tmp_path: Path, queues: bool) -> None:
    builder = StoreBuilder(tmp_path, first_offset=5 * FILE_BYTES).put_many(200)
    root = builder.write(queues=queues)

    plan = StoreReader(root).plan()

    assert plan.log_from == 5 * FILE_BYTES
    assert offsets(root) == expected(builder)
    assert not damages(root)


@pytest.mark.parametrize("junk", [False, True], ids=["zeros behind", "junk behind"])
def test_a_last_record_torn_at_any_byte_is_left_out(
    tmp_path: Path, queues: bool, junk: bool, rng: random.Random
) -> None:
    builder = StoreBuilder(tmp_path, file_bytes=2048).put_many(3)
    last = builder.put(body=b"the last body", properties=b"TAGS\x01t")
    whole = bytes(builder.files[0])
    builder.write(queues=queues)
    # Properties have no checksum, so truncated ones look like a complete record.
    guarded = last.size - len(last.properties)

    for cut in range(last.size):
        behind = len(whole) - last.commit_log_offset - cut
        rest = bytes(rng.randrange(128, 256) for _ in range(behind)) if junk else bytes(behind)
        content = whole[: last.commit_log_offset + cut] + rest
        builder.path_of(0).write_bytes(content)
        found = offsets(tmp_path)

        if cut < guarded:
            assert found == expected(builder, without=(-1,)), cut
            plan = StoreReader(tmp_path).plan()
            assert plan.log_to == last.commit_log_offset
        assert found[:3] == expected(builder)[:3]
        assert not damages(tmp_path), cut


@pytest.mark.usefixtures("small_splits")
def test_a_truncation_costs_the_same_for_any_number_of_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = StoreBuilder(tmp_path, file_bytes=256 * 1024)
    for number in range(900):
        builder.put(queue_id=number % 150, body=bytes(100))
    root = builder.write()
    opened: list[Path] = []
    real = log_files.opened

    def counting(path: Path) -> AbstractContextManager[int]:
        opened.append(path)
        return real(path)

    monkeypatch.setattr(consume_queues, "opened", counting)
    whole = StoreReader(root, split_bytes=10**9).plan()
    without_cuts = len(opened)
    opened.clear()

    plan = StoreReader(root, split_bytes=2000).plan()

    cuts = len(plan.splits) - len(whole.splits)
    assert cuts > 50
    assert len(opened) - without_cuts <= 2 * cuts


@pytest.mark.usefixtures("small_splits")
def test_a_record_that_a_sender_put_inside_a_body_is_not_a_truncation(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path, file_bytes=64 * 1024)
    for number in range(200):
        lead = bytes(number % 7)
        made_at = builder.position + record.FIXED_V4_SIZE + len(lead)
        builder.put(body=lead + _record_that_states(made_at) + bytes(60))
    reader = StoreReader(builder.write(), split_bytes=500)

    plan = reader.plan()

    assert len(plan.splits) > 20
    assert {split.commit_log_from for split in plan.splits} <= set(expected(builder))
    assert [row["commit_log_offset"] for row in read(reader, plan)] == expected(builder)


def _record_that_states(commit_log_offset: int) -> bytes:
    made = bytearray(500)
    size = record.encode_into(
        made,
        0,
        topic=b"orders",
        queue_id=0,
        queue_offset=0,
        commit_log_offset=commit_log_offset,
        body=b"forged",
        properties=b"",
        flag=0,
        sys_flag=0,
        born_timestamp=START_MS,
        born_host=V4_HOST,
        store_timestamp=START_MS,
        store_host=V4_HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
    )
    return bytes(made[:size])


def test_a_plan_from_before_the_first_file_includes_the_lost_bytes(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(400)
    reader = StoreReader(builder.write())
    before = reader.plan()

    builder.path_of(0).unlink()
    plan = reader.plan(from_offset=before.log_from, to_offset=before.log_to)

    assert (plan.log_from, plan.log_to) == (before.log_from, before.log_to)
    assert plan.splits[0].commit_log_to == FILE_BYTES
    assert [damage.reason for damage in reader.damages(plan.splits[0])] == [FILE_GONE]


def test_a_plan_shows_when_its_first_record_was_stored(tmp_path: Path) -> None:
    root = StoreBuilder(tmp_path).put_many(10).write()

    assert StoreReader(root).plan().stored_from_ms == START_MS
