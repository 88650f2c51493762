"""Where two logs diverge, and which data is saved and removed."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from broker_core.errors import ReplicationError
from broker_core.formats import record
from broker_core.ha.divergence import (
    Place,
    find_shared_end,
    fingerprint,
    messages_of,
)
from broker_core.ha.epochs import LogRange
from tests.support.builders import LOG_FILE_SIZE, a_store, get, put, read_all, store_config
from tests.support.clock import ManualClock
from tests.support.diverged_logs import after_kill, diverged_stores, filled, range_of, small_log
from tests.support.faulty_storage import FaultyStorage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker_core.store.commit_log import CommitLog
    from broker_core.store.message_store import MessageStore

DIVERGED = Path("/store/diverged")


class KilledError(Exception):
    """The process ends here."""


class OtherLog:
    """Answers for another log, and counts the queries."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self.questions = 0
        self.places = 0

    async def __call__(self, places: Sequence[Place]) -> list[str | None]:
        self.questions += 1
        self.places += len(places)
        return [fingerprint(self._log, place) for place in places]


def bodies(store: MessageStore) -> list[bytes]:
    return [one.body for queue_id in (0, 1) for one in read_all(store, "TopicTest", queue_id)]


@pytest.mark.parametrize("shared", [1, 10, 63, 64, 65, 200, 400])
@pytest.mark.parametrize("own", [1, 7, 150])
async def test_the_end_of_the_shared_part_of_two_logs_is_found(shared: int, own: int) -> None:
    ours, theirs, end = await diverged_stores(shared, own, other=170)
    ask = OtherLog(theirs.files.log)
    limit = min(ours.max_commit_log_offset, theirs.max_commit_log_offset)

    found = await find_shared_end(ours.files.log, limit, range_of(theirs), ask)

    assert found == end
    # Each query compares 8 records and leaves a ninth of the remaining range: of a file's 70, three
    # suffice; the first one asks for the last record only.
    files = ours.max_commit_log_offset // LOG_FILE_SIZE - end // LOG_FILE_SIZE + 2
    assert ask.questions <= 4 * files
    assert ask.places <= 8 * ask.questions
    await ours.shutdown()
    await theirs.shutdown()


async def test_for_equal_logs_one_query_is_enough() -> None:
    ours, theirs, end = await diverged_stores(200, 0, 50)
    ask = OtherLog(theirs.files.log)
    unit = ours.units("TopicTest", 1, 99, 1)[0]

    found = await find_shared_end(
        ours.files.log, end, range_of(theirs), ask, last=Place(unit[0], unit[1])
    )

    assert (found, ask.questions, ask.places) == (end, 1, 1)
    await ours.shutdown()
    await theirs.shutdown()


async def test_a_log_of_another_set_is_rejected() -> None:
    ours = await filled(FaultyStorage(), 30, "ours")
    theirs = await filled(FaultyStorage(), 30, "theirs")

    with pytest.raises(
        ReplicationError, match="belong to different sets, or the master lost its log"
    ):
        await find_shared_end(
            ours.files.log,
            ours.max_commit_log_offset,
            range_of(theirs),
            OtherLog(theirs.files.log),
        )
    await ours.shutdown()
    await theirs.shutdown()


async def test_a_master_whose_log_starts_after_our_end_is_rejected() -> None:
    ours, theirs, end = await diverged_stores(10, 0, 0)
    expired = range_of(theirs)._replace(min_offset=end + 1, max_offset=end + 1000)

    with pytest.raises(ReplicationError, match="messages in between are deleted"):
        await find_shared_end(ours.files.log, end, expired, OtherLog(theirs.files.log))
    await ours.shutdown()
    await theirs.shutdown()


async def test_a_peer_with_an_incomplete_answer_is_rejected() -> None:
    ours, theirs, end = await diverged_stores(10, 0, 0)

    async def silent(_: Sequence[Place]) -> list[str | None]:
        return []

    with pytest.raises(ReplicationError, match="0 of 1 requests"):
        await find_shared_end(ours.files.log, end, range_of(theirs), silent)
    await ours.shutdown()
    await theirs.shutdown()


@pytest.mark.parametrize(("shared", "own"), [(10, 5), (60, 200), (130, 1), (3, 300)])
async def test_a_truncation_equals_a_store_that_never_had_the_rest(shared: int, own: int) -> None:
    storage = FaultyStorage()
    store = await filled(storage, shared)
    end, before = store.max_commit_log_offset, bodies(store)
    left = await after_kill(store, storage)
    longer = await filled(left, own, "own")
    await longer.shutdown()  # a clean exit: only that makes recovery check

    store = a_store(ManualClock(), left, store_config())
    report = store.load(cut_at=end)

    assert store.max_commit_log_offset == end
    assert report.damaged == []
    assert bodies(store) == before
    assert len(store.query_message("TopicTest", "shared-1", 32, 0, 1 << 60)) == 1
    assert store.query_message("TopicTest", "own-0", 32, 0, 1 << 60) == []
    await store.start()
    again = put(store, body=b"new", keys="new")
    assert again.commit_log_offset == end
    assert get(store, again.queue_offset).buffers
    await store.shutdown()


async def test_a_truncation_interrupted_by_a_power_cut_completes_at_the_next_start() -> None:
    storage = FaultyStorage()
    store = await filled(storage, 60)
    end, before = store.max_commit_log_offset, bodies(store)
    left = await after_kill(store, storage)
    image = await after_kill(await filled(left, 250, "own"), left)
    calls = 0
    while True:
        calls += 1
        disk = image.crash()
        left_calls = calls

        def count(_: str) -> None:
            nonlocal left_calls
            left_calls -= 1
            if left_calls == 0:
                raise KilledError

        disk.on_call = count
        store = a_store(ManualClock(), disk, store_config())
        try:
            store.load(cut_at=end)
        except KilledError:
            pass
        else:
            break
        for after in (disk.crash(), disk.cut_power()):
            after.on_call = None
            again = a_store(ManualClock(), after, store_config())
            report = again.load(cut_at=end)
            assert (again.max_commit_log_offset, report.damaged) == (end, [])
            assert bodies(again) == before
            again.close()
    assert calls > 10
    assert end > LOG_FILE_SIZE // 2


async def test_a_record_right_after_a_single_invalid_byte_is_found() -> None:
    store = await filled(FaultyStorage(), 3)
    log = store.files.log
    begin = put(store).commit_log_offset

    reports = list(messages_of(log, begin - 1, log.max_offset))

    assert [(one["commitLogOffset"], one["size"]) for one in reports] == [
        (begin - 1, 1),
        (begin, log.max_offset - begin),
    ]
    assert ["unreadable" in one for one in reports] == [True, False]
    await store.shutdown()


async def test_a_given_last_record_that_differs_is_searched_for() -> None:
    ours, theirs, end = await diverged_stores(10, 1, 1)
    limit = ours.max_commit_log_offset

    found = await find_shared_end(
        ours.files.log, limit, range_of(theirs), OtherLog(theirs.files.log), Place(end, limit - end)
    )

    assert found == end
    await ours.shutdown()
    await theirs.shutdown()


@pytest.mark.parametrize("begin_at", [0, 3, 4])
async def test_data_that_the_other_log_no_longer_has_is_not_requested(begin_at: int) -> None:
    store = await small_log(100, 100, 100, 100)
    units = [*store.units("TopicTest", 0, 0, 4)]
    begin = units[begin_at][0] if begin_at < 4 else store.max_commit_log_offset
    other = range_of(store)._replace(min_offset=begin)
    requests: list[Place] = []

    async def ask(places: Sequence[Place]) -> list[str | None]:
        requests.extend(places)
        return [fingerprint(store.files.log, place) for place in places]

    end = await find_shared_end(store.files.log, store.max_commit_log_offset, other, ask)

    assert end == store.max_commit_log_offset
    assert all(place.commit_log_offset >= begin for place in requests)
    assert bool(requests) is (begin_at < 4)
    await store.shutdown()


async def test_an_empty_log_shares_everything_it_has() -> None:
    store = await small_log()

    end = await find_shared_end(
        store.files.log, 0, LogRange((), 5_000, 9_000), OtherLog(store.files.log)
    )

    assert end == 0
    await store.shutdown()


async def test_a_record_cut_by_the_limit_is_not_shared() -> None:
    store = await small_log(100, 100, 100)
    offset, size, _ = store.units("TopicTest", 0, 2, 1)[0]

    end = await find_shared_end(
        store.files.log, offset + size - 10, range_of(store), OtherLog(store.files.log)
    )

    assert end == offset
    await store.shutdown()


async def test_damage_in_the_middle_does_not_hide_the_shared_part_after_it() -> None:
    ours, theirs = await small_log(100, 100, 100), await small_log(100, 100, 100)
    offset, _, _ = ours.units("TopicTest", 0, 1, 1)[0]
    ours.files.log.files[0].buffer[offset + 4] ^= 1

    end = await find_shared_end(
        ours.files.log, ours.max_commit_log_offset, range_of(theirs), OtherLog(theirs.files.log)
    )

    assert end == ours.max_commit_log_offset
    await ours.shutdown()
    await theirs.shutdown()


async def test_a_log_without_a_record_shares_nothing() -> None:
    ours, theirs = await small_log(), await small_log(100)
    ours.files.log.append_data(memoryview(b"\1" * 50))

    end = await find_shared_end(ours.files.log, 50, range_of(theirs), OtherLog(theirs.files.log))

    assert end == 0
    await ours.shutdown()
    await theirs.shutdown()


async def test_a_files_smallest_blank_record_is_also_shared() -> None:
    ours, theirs = await small_log(100), await small_log(100)
    for store in (ours, theirs):
        while (left := LOG_FILE_SIZE - store.max_commit_log_offset) > 3_000:
            put(store, body=b"x" * 1_000)
        overhead = store.units("TopicTest", 0, 1, 1)[0][1] - 1_000
        # Eight bytes remain, room for a minimal blank record.
        put(store, body=b"x" * (left - 8 - overhead))
        put(store)
        assert [unit[0] for unit in store.units("TopicTest", 0, 0, 200)][-1] == LOG_FILE_SIZE

    end = await find_shared_end(
        ours.files.log, LOG_FILE_SIZE, range_of(theirs), OtherLog(theirs.files.log)
    )

    assert end == LOG_FILE_SIZE
    await ours.shutdown()
    await theirs.shutdown()


async def test_a_fingerprint_depends_only_on_the_logs_content() -> None:
    storage = FaultyStorage()
    store = await filled(storage, 100)
    log = store.files.log
    log.delete_first()
    begin, end = log.min_offset, log.max_offset
    assert 0 < begin < end

    def of(offset: int, size: int) -> str | None:
        return fingerprint(log, Place(offset, size))

    data = bytes(log.committed_view(begin) or b"")
    assert of(begin, 100) == hashlib.sha256(data[:100]).hexdigest()
    assert of(begin, 1) == hashlib.sha256(data[:1]).hexdigest()
    assert of(begin, 5_000) == hashlib.sha256(data[:4_096]).hexdigest()
    assert of(end - 100, 100) == hashlib.sha256(data[-100:]).hexdigest()
    assert [of(begin - 1, 100), of(end - 100, 101), of(begin, 0), of(begin, -5)] == [None] * 4
    # A record never spans two files.
    assert of(begin - 10, 100) is None
    await store.shutdown()


async def test_a_message_is_reported_with_all_its_identifiers() -> None:
    store = await small_log()
    put(store)
    put(store, "Other", 3, keys="ключ", uniq_key="id-1", tags="T", sys_flag=2)
    units = store.units("TopicTest", 0, 0, 1) + store.units("Other", 3, 0, 1)
    log = store.files.log

    reports = list(messages_of(log, 0, log.max_offset))

    common = {
        "queueOffset": 0,
        "bornTimestamp": 1_795_251_442_181,
        "storeTimestamp": ManualClock().now_ms(),
        "reconsumeTimes": 0,
    }
    places = [{"commitLogOffset": offset, "size": size} for offset, size, _ in units]
    assert reports == [
        {"topic": "TopicTest", "queueId": 0, "keys": "", "uniqKey": "", "tags": "", "sysFlag": 0}
        | common
        | places[0],
        {"topic": "Other", "queueId": 3, "keys": "ключ", "uniqKey": "id-1", "tags": "T"}
        | {"sysFlag": 2}
        | common
        | places[1],
    ]
    await store.shutdown()


async def test_a_body_with_a_wrong_checksum_is_unreadable_up_to_the_next_intact_one() -> None:
    store = await small_log(100, 100, 100, 100)
    places = [unit[0] for unit in store.units("TopicTest", 0, 0, 4)]
    for place in places[1:3]:
        store.files.log.files[0].buffer[place + 100] ^= 1

    reports = list(messages_of(store.files.log, 0, store.max_commit_log_offset))

    assert [one["commitLogOffset"] for one in reports] == [places[0], places[1], places[3]]
    assert reports[1]["size"] == places[3] - places[1]
    assert "unreadable" in reports[1]
    await store.shutdown()


def as_version_2(data: bytes) -> bytes:
    """Return a record as RocketMQ 5 writes it: the length of its topic takes two bytes."""
    topic_at = 88 + int.from_bytes(data[84:88], "big")
    size = (len(data) + 1).to_bytes(4, "big")
    return size + record.MESSAGE_MAGIC_V2_BYTES + data[8:topic_at] + b"\0" + data[topic_at:]


async def test_a_record_of_the_second_version_ends_an_invalid_stretch() -> None:
    store = await small_log(100, 100, 100)
    (_, at_first, _), (begin, at_second, _), (third, _, _) = store.units("TopicTest", 0, 0, 3)
    data = whole = bytes(store.files.log.committed_view(0) or b"")
    broken = bytearray(data[:begin])
    broken[4] ^= 1
    last = bytearray(whole[third:])
    last[28:36] = (third + 1).to_bytes(8, "big")
    other = await small_log()
    other.files.log.append_data(
        memoryview(bytes(broken) + as_version_2(whole[begin:third]) + bytes(last))
    )

    reports = list(messages_of(other.files.log, 0, other.files.log.max_offset))

    assert [(one["commitLogOffset"], one["size"]) for one in reports] == [
        (0, at_first),
        (begin, at_second + 1),
        (third + 1, len(last)),
    ]
    assert ["unreadable" in one for one in reports] == [True, False, False]
    await store.shutdown()
    await other.shutdown()


async def test_the_report_ends_at_the_logs_end() -> None:
    store = await small_log(100)
    end = store.max_commit_log_offset

    reports = list(messages_of(store.files.log, end, end + 2 * LOG_FILE_SIZE))

    assert [(one["commitLogOffset"], one["size"]) for one in reports] == [
        (end, LOG_FILE_SIZE - end)
    ]
    await store.shutdown()
