from __future__ import annotations

import errno
import os
import struct
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from analytics import store_reader
from analytics.decoding import COLUMN_TYPES, Damage, RowFilter
from analytics.errors import ReportError
from analytics.store_reader import CLOCK_STEP_MS_MAX, ReadPlan, StoreReader
from broker_core.formats import cq_unit, paths, record
from tests.analytics.store_builder import (
    FILE_BYTES,
    START_MS,
    V4_HOST,
    V6_HOST,
    StoreBuilder,
    Stored,
)

if TYPE_CHECKING:
    import random

OFFSETS = pa.schema([("commit_log_offset", pa.int64()), ("store_size", pa.int32())])
WITH_DAMAGE = pa.schema([("commit_log_offset", pa.int64()), ("damage", COLUMN_TYPES["damage"])])
BODIES = pa.schema([("body", pa.binary()), ("topic", pa.string())])
EVERY_TOPIC = RowFilter(include_system_topics=True)


@pytest.fixture(params=[True, False], ids=["queues", "no queues"])
def queues(request: pytest.FixtureRequest) -> bool:
    """Whether the store has its ConsumeQueues, or only a copy of the log was kept."""
    return bool(request.param)


@pytest.fixture
def small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_reader, "SPLIT_BYTES_MIN", 1)


def read(reader: StoreReader, plan: ReadPlan, schema: pa.Schema = OFFSETS) -> list[dict[str, Any]]:
    rows = [
        row
        for split in plan.splits
        for batch in reader.read(split, schema, EVERY_TOPIC)
        for row in batch.to_pylist()
    ]
    return sorted(rows, key=lambda row: row.get("commit_log_offset") or 0)


def offsets(root: Path) -> list[int]:
    reader = StoreReader(root)
    return [row["commit_log_offset"] for row in read(reader, reader.plan())]


def damages(root: Path) -> list[Damage]:
    reader = StoreReader(root)
    return [damage for split in reader.plan().splits for damage in reader.damages(split)]


def expected(builder: StoreBuilder, *, without: tuple[int, ...] = ()) -> list[int]:
    return [
        one.commit_log_offset
        for number, one in enumerate(builder.stored)
        if number not in without and number - len(builder.stored) not in without
    ]


def test_every_record_of_several_files_is_read_once(tmp_path: Path, queues: bool) -> None:
    builder = StoreBuilder(tmp_path).put_many(400)
    assert len(builder.files) > 3
    root = builder.write(queues=queues)

    plan = StoreReader(root).plan()

    assert offsets(root) == expected(builder)
    assert not damages(root)
    assert (plan.log_from, plan.log_to) == (0, builder.position)
    assert plan.tail is None


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


@pytest.mark.parametrize("chunk_bytes", [91, 100, 257, 1000])
def test_a_record_may_lie_across_any_chunk_edge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    monkeypatch.setattr(store_reader, "CHUNK_BYTES", chunk_bytes)
    builder = StoreBuilder(tmp_path).put_many(60)
    builder.put(body=bytes(2000))
    builder.put_many(60)
    root = builder.write()

    assert offsets(root) == expected(builder)
    assert not damages(root)


def test_a_log_may_start_anywhere(tmp_path: Path, queues: bool) -> None:
    builder = StoreBuilder(tmp_path, first_offset=5 * FILE_BYTES).put_many(200)
    root = builder.write(queues=queues)

    plan = StoreReader(root).plan()

    assert plan.log_from == 5 * FILE_BYTES
    assert offsets(root) == expected(builder)
    assert not damages(root)


@pytest.mark.parametrize("first_offset", [2**31 - 2 * FILE_BYTES, 2**40])
def test_offsets_may_need_64_bits(tmp_path: Path, queues: bool, first_offset: int) -> None:
    builder = StoreBuilder(tmp_path, first_offset=first_offset).put_many(400)
    builder.overwrite(builder.stored[20].commit_log_offset, bytes(8))
    root = builder.write(queues=queues)

    found = damages(root)

    assert offsets(root) == expected(builder, without=(20,))
    assert [one.commit_log_from for one in found] == [builder.stored[20].commit_log_offset]


def test_two_gigabytes_in_small_sparse_files_are_read(tmp_path: Path) -> None:
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
    assert len(plan.shares(store_reader.SPLIT_BYTES_DEFAULT)) == -(-files // 64)


@given(
    spoils=st.lists(
        st.tuples(st.integers(0, 5 * FILE_BYTES - 1), st.binary(min_size=1, max_size=200)),
        max_size=6,
    ),
    queues=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_whatever_is_damaged_each_byte_is_a_row_or_named(
    tmp_path_factory: pytest.TempPathFactory,
    spoils: list[tuple[int, bytes]],
    queues: bool,
) -> None:
    builder = StoreBuilder(tmp_path_factory.mktemp("store")).put_many(280)
    blank_bytes = sum(
        start + FILE_BYTES - _end(max(inside, key=_end))
        for start in sorted(builder.files)[:-1]
        for inside in [
            [
                one
                for one in builder.stored
                if builder.path_of(start) == builder.path_of(one.commit_log_offset)
            ]
        ]
    )
    for offset, content in spoils:
        start = offset // FILE_BYTES * FILE_BYTES
        if start in builder.files:
            builder.overwrite(offset, content[: start + FILE_BYTES - offset])
    reader = StoreReader(builder.write(queues=queues))

    plan = reader.plan()

    rows = read(reader, plan)
    found = [damage for split in plan.splits for damage in reader.damages(split)]
    spans = [
        (row["commit_log_offset"], row["commit_log_offset"] + row["store_size"]) for row in rows
    ]
    spans += [(one.commit_log_from, one.commit_log_to) for one in found]
    spans.sort()
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    covered = sum(end - start for start, end in spans)
    assert plan.log_to - plan.log_from - blank_bytes <= covered <= plan.log_to - plan.log_from
    assert {row["commit_log_offset"] for row in rows} <= set(expected(builder))


def test_files_allocated_ahead_are_no_messages(tmp_path: Path, queues: bool) -> None:
    builder = StoreBuilder(tmp_path).put_many(10).add_zero_file().add_zero_file()
    root = builder.write(queues=queues)

    plan = StoreReader(root).plan()

    assert plan.log_to == builder.position
    assert plan.tail is None
    assert offsets(root) == expected(builder)
    assert not damages(root)


def test_a_file_that_ended_full_before_the_next_got_its_first_record(
    tmp_path: Path, queues: bool
) -> None:
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


@pytest.mark.parametrize("junk", [False, True], ids=["zeros behind", "junk behind"])
def test_a_last_record_torn_at_any_byte_is_left_out(
    tmp_path: Path, queues: bool, junk: bool, rng: random.Random
) -> None:
    builder = StoreBuilder(tmp_path, file_bytes=2048).put_many(3)
    last = builder.put(body=b"the last body", properties=b"TAGS\x01t")
    whole = bytes(builder.files[0])
    builder.write(queues=queues)
    # No checksum guards the properties: a cut in them cannot be told from a whole record.
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


def test_units_of_records_that_never_reached_the_log_are_ignored(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(30)
    lost = builder.stored[20]
    builder.overwrite(lost.commit_log_offset, bytes(builder.position - lost.commit_log_offset))
    root = builder.write()

    plan = StoreReader(root).plan()

    assert plan.log_to == lost.commit_log_offset
    assert offsets(root) == expected(builder)[:20]
    assert not damages(root)


def test_what_is_appended_after_the_plan_is_not_read(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(10)
    reader = StoreReader(builder.write())
    plan = reader.plan()
    before = expected(builder)

    builder.put_many(300)
    builder.write()

    assert [row["commit_log_offset"] for row in read(reader, plan)] == before


def test_a_plan_within_given_offsets_is_the_same_picture_later(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(10)
    reader = StoreReader(builder.write())
    first = reader.plan()
    builder.put_many(300)
    builder.write()

    again = StoreReader(tmp_path).plan(from_offset=first.log_from, to_offset=first.log_to)

    assert again.splits == first.splits


@pytest.mark.parametrize(
    ("what", "content"),
    [
        ("magic", struct.pack(">ii", 0, 0)),
        ("junk", b"\x7f" * 16),
        ("small size", struct.pack(">i", 95)),
        ("large size", struct.pack(">i", 4000)),
        ("huge size", struct.pack(">i", 2**31 - 1)),
        ("blank", struct.pack(">ii", 60, record.BLANK_MAGIC)),
    ],
)
def test_damage_in_the_middle_costs_that_record_only(
    tmp_path: Path, queues: bool, what: str, content: bytes
) -> None:
    builder = StoreBuilder(tmp_path).put_many(400)
    spoiled = builder.stored[20]
    builder.overwrite(spoiled.commit_log_offset, content)
    root = builder.write(queues=queues)

    found = damages(root)

    assert offsets(root) == expected(builder, without=(20,)), what
    assert [(one.commit_log_from, one.commit_log_to) for one in found] == [
        (spoiled.commit_log_offset, spoiled.commit_log_offset + spoiled.size)
    ]
    assert found[0].file == str(builder.path_of(0))


def test_damage_in_the_file_that_is_written_to_is_stepped_over(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(20)
    builder.overwrite(builder.stored[5].commit_log_offset, bytes(8))
    builder.overwrite(builder.stored[9].commit_log_offset, bytes(8))
    root = builder.write()

    assert offsets(root) == expected(builder, without=(5, 9))
    assert len(damages(root)) == 2


def test_a_page_of_zeros_is_one_damaged_range(tmp_path: Path, queues: bool) -> None:
    builder = StoreBuilder(tmp_path).put_many(400)
    builder.overwrite(1000, bytes(1024))
    root = builder.write(queues=queues)
    lost = [one for one in builder.stored if one.commit_log_offset < 2024 and _end(one) > 1000]

    found = damages(root)

    hit = tuple(builder.stored.index(one) for one in lost)
    assert offsets(root) == expected(builder, without=hit)
    assert sum(one.commit_log_to - one.commit_log_from for one in found) == sum(
        one.size for one in lost
    )


def test_a_record_inside_a_damaged_body_is_not_believed_where_a_queue_knows_better(
    tmp_path: Path,
) -> None:
    builder = StoreBuilder(tmp_path).put_many(3)
    host = builder.position
    inner_at = host + record.FIXED_V4_SIZE + 10
    forged = bytearray(200)
    size = record.encode_into(
        forged,
        0,
        topic=b"forged",
        queue_id=0,
        queue_offset=0,
        commit_log_offset=inner_at,
        body=b"",
        properties=b"",
        flag=0,
        sys_flag=0,
        born_timestamp=START_MS,
        born_host=bytes(8),
        store_timestamp=START_MS,
        store_host=bytes(8),
    )
    builder.put(body=bytes(10) + bytes(forged[:size]) + bytes(10))
    builder.put_many(300)
    builder.overwrite(host, struct.pack(">i", 0))
    root = builder.write()

    assert offsets(root) == expected(builder, without=(3,))


def test_damage_is_logged_where_it_is_no_column(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    builder = StoreBuilder(tmp_path).put_many(20)
    spoiled = builder.stored[5]
    builder.overwrite(spoiled.commit_log_offset, bytes(8))

    offsets(builder.write())

    assert f"commit_log_from={spoiled.commit_log_offset} " in caplog.text
    assert "zeros where a record should be" in caplog.text


def test_a_missing_file_is_one_damaged_range(tmp_path: Path, queues: bool) -> None:
    builder = StoreBuilder(tmp_path).put_many(400)
    root = builder.write(queues=queues)
    builder.path_of(FILE_BYTES).unlink()

    found = damages(root)

    assert [(one.commit_log_from, one.commit_log_to) for one in found] == [
        (FILE_BYTES, 2 * FILE_BYTES)
    ]
    assert "not there" in found[0].reason
    assert offsets(root) == [
        at for at in expected(builder) if not FILE_BYTES <= at < 2 * FILE_BYTES
    ]


def test_a_file_that_expires_after_the_plan_is_named(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(400)
    reader = StoreReader(builder.write())
    plan = reader.plan()

    builder.path_of(0).unlink()

    rows = read(reader, plan, WITH_DAMAGE)
    named = [row["damage"] for row in rows if row["damage"]]
    assert [(one["commit_log_from"], one["commit_log_to"]) for one in named] == [(0, FILE_BYTES)]
    assert len(rows) - 1 == len([at for at in expected(builder) if at >= FILE_BYTES])


def test_a_file_that_is_cut_short_is_named(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(400)
    reader = StoreReader(builder.write())
    plan = reader.plan()
    cut = builder.stored[10].commit_log_offset + 17

    os.truncate(builder.path_of(0), cut)

    found = [damage for split in plan.splits for damage in reader.damages(split)]
    rows = [row["commit_log_offset"] for row in read(reader, plan)]
    assert rows == [at for at in expected(builder) if at >= FILE_BYTES or at < cut - 17]
    assert {one.commit_log_from for one in found} == {cut - 17, cut}


def test_a_disk_error_is_a_damaged_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = StoreBuilder(tmp_path).put_many(400)
    reader = StoreReader(builder.write())
    plan = reader.plan()
    real = os.preadv

    def failing(descriptor: int, buffers: list[memoryview], position: int) -> int:
        if Path(f"/proc/self/fd/{descriptor}").readlink() == builder.path_of(0):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(descriptor, buffers, position)

    monkeypatch.setattr(os, "preadv", failing)

    found = [damage for split in plan.splits for damage in reader.damages(split)]
    rows = [row["commit_log_offset"] for row in read(reader, plan)]
    assert [(one.commit_log_from, one.commit_log_to) for one in found] == [(0, FILE_BYTES)]
    assert "Input/output error" in found[0].reason
    assert rows == [at for at in expected(builder) if at >= FILE_BYTES]


def test_a_split_with_endless_damage_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_reader, "DAMAGES_PER_SPLIT_MAX", 3)
    builder = StoreBuilder(tmp_path).put_many(40)
    for one in builder.stored[::2]:
        builder.overwrite(one.commit_log_offset, bytes(8))
    root = builder.write()

    found = damages(root)

    assert len(found) == 4
    assert "too much damage" in found[-1].reason
    assert found[-1].commit_log_to == builder.position


def test_hosts_may_be_ipv6(tmp_path: Path, queues: bool) -> None:
    builder = StoreBuilder(tmp_path)
    for number in range(100):
        builder.put(
            f"topic-{number % 3}",
            body=b"%d" % number,
            born_host=V6_HOST if number % 3 == 1 else V4_HOST,
            store_host=V6_HOST if number % 4 == 1 else V4_HOST,
        )
    root = builder.write(queues=queues)
    reader = StoreReader(root)

    rows = read(reader, reader.plan(), BODIES)

    assert [row["body"] for row in rows] == [one.body for one in builder.stored]
    assert not damages(root)


def test_queues_longer_than_one_file_and_fillers_are_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_reader, "SPLIT_BYTES_MIN", 1)
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


def test_only_files_near_the_wanted_time_are_read(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    hour = 3_600_000
    for number in range(300):
        builder.put(store_timestamp=START_MS + number * hour // 10)
    reader = StoreReader(builder.write())
    from_ms, to_ms = START_MS + 10 * hour, START_MS + 11 * hour
    wanted = [
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
    assert found == wanted
    assert len(plan.splits) == 1
    assert plan.skipped_bytes == builder.position - plan.split_bytes
    assert (plan.log_from, plan.log_to) == (0, builder.position)


def test_a_clock_that_was_set_back_a_little_hides_nothing(tmp_path: Path) -> None:
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
def test_a_store_without_messages_is_no_error(tmp_path: Path, made: str) -> None:
    if made != "nothing":
        (tmp_path / "commitlog").mkdir()
    if made.endswith("file"):
        content = bytes(FILE_BYTES) if made == "zero file" else b""
        (tmp_path / "commitlog" / paths.offset_file_name(0)).write_bytes(content)

    plan = StoreReader(tmp_path).plan()

    assert (plan.splits, plan.log_from, plan.log_to) == ([], 0, 0)
    assert plan.tail is None


def test_a_missing_store_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"There is no store at .*gone: no such directory"):
        StoreReader(tmp_path / "gone").plan()


def test_a_missing_commit_log_elsewhere_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"There is no store at .*elsewhere: no such directory"):
        StoreReader(tmp_path, commit_log_path=tmp_path / "elsewhere").plan()


def test_a_store_that_is_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "commitlog").write_text("")

    with pytest.raises(ReportError, match=r"commitlog cannot be read: Not a directory\."):
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


def test_a_file_that_may_not_be_read_is_a_damaged_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = StoreBuilder(tmp_path).put_many(400)
    root = builder.write()
    real = os.open

    def refusing(path: Path, flags: int, *more: int) -> int:
        if path == builder.path_of(0):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(path, flags, *more)

    monkeypatch.setattr(os, "open", refusing)

    found = damages(root)

    assert [(one.commit_log_from, one.commit_log_to) for one in found] == [(0, FILE_BYTES)]
    assert "Permission denied" in found[0].reason


def test_reading_changes_nothing_in_the_store(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(100)
    builder.overwrite(builder.stored[5].commit_log_offset, bytes(8))
    root = builder.write()

    before = _picture(root)
    offsets(root)

    assert _picture(root) == before


def _end(one: Stored) -> int:
    return one.commit_log_offset + one.size


def _picture(root: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_mode, path.read_bytes())
        for path in root.rglob("*")
        if path.is_file()
    }
