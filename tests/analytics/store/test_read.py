"""Reading a split yields each valid record once, and each damaged range once."""

from __future__ import annotations

import errno
import os
import struct
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from analytics.errors import DataLossError, ReportError
from analytics.store import log_files, read as read_module
from analytics.store.reader import StoreReader
from broker_core.formats import record
from tests.analytics.store.store_reads import (
    BODIES,
    EVERY_TOPIC,
    OFFSETS,
    WITH_DAMAGE,
    damages,
    expected,
    offsets,
    read,
)
from tests.analytics.store_builder import (
    FILE_BYTES,
    START_MS,
    V4_HOST,
    V6_HOST,
    StoreBuilder,
    Stored,
)
from tests.support.foreign_entries import leave_in


def test_every_record_of_several_files_is_read_once(tmp_path: Path, queues: bool) -> None:
    builder = StoreBuilder(tmp_path).put_many(400)
    assert len(builder.files) > 3
    root = builder.write(queues=queues)

    plan = StoreReader(root).plan()

    assert offsets(root) == expected(builder)
    assert not damages(root)
    assert (plan.log_from, plan.log_to) == (0, builder.position)
    assert plan.tail is None


def test_entries_that_no_store_creates_are_not_read(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(400)
    root = builder.write(queues=True)
    for directory in ("commitlog", "consumequeue", "consumequeue/orders", "consumequeue/orders/0"):
        leave_in(root / directory)

    assert offsets(root) == expected(builder)
    assert not damages(root)


@pytest.mark.parametrize("chunk_bytes", [91, 100, 257, 1000])
def test_a_record_may_cross_any_chunk_edge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    monkeypatch.setattr(log_files, "CHUNK_BYTES", chunk_bytes)
    builder = StoreBuilder(tmp_path).put_many(60)
    builder.put(body=bytes(2000))
    builder.put_many(60)
    root = builder.write()

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


@given(
    spoils=st.lists(
        st.tuples(st.integers(0, 5 * FILE_BYTES - 1), st.binary(min_size=1, max_size=200)),
        max_size=6,
    ),
    queues=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_any_damage_leaves_each_byte_in_a_row_or_named(
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
def test_damage_in_the_middle_loses_only_that_record(
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


def test_damage_in_the_currently_written_file_is_skipped(tmp_path: Path) -> None:
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
    sizes = [(one.commit_log_to or 0) - (one.commit_log_from or 0) for one in found]
    assert sum(sizes) == sum(one.size for one in lost)


def test_a_record_inside_a_damaged_body_is_not_trusted_against_a_queue(
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


def test_damage_is_logged_if_it_is_not_a_column(
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
    assert "doesn't exist" in found[0].reason
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


def test_a_read_fails_if_a_file_has_expired_since_the_plan(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(400)
    reader = StoreReader(builder.write())
    plan = reader.plan()

    builder.path_of(0).unlink()

    with pytest.raises(DataLossError, match=rf"Bytes 0 to {FILE_BYTES} .* failOnDataLoss=false"):
        list(reader.read(plan.splits[0], OFFSETS, EVERY_TOPIC))


@pytest.mark.parametrize("fail", [True, False])
def test_a_machine_without_access_to_the_store_reports_it(tmp_path: Path, fail: bool) -> None:
    builder = StoreBuilder(tmp_path / "store").put_many(40)
    reader = StoreReader(builder.write())
    plan = reader.plan()

    (tmp_path / "store").rename(tmp_path / "elsewhere")

    with pytest.raises(ReportError, match=r"doesn't see the store at .*store/commitlog. Every"):
        list(reader.read(plan.splits[0], WITH_DAMAGE, EVERY_TOPIC, fail_on_data_loss=fail))


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
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
    monkeypatch.setattr(read_module, "DAMAGES_PER_SPLIT_MAX", 3)
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


def test_a_file_without_read_permission_is_a_damaged_range(
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
