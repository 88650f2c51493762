"""Crashes that lost data, found by the model of the store."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from broker_core.store.message_store import MessageStore
from tests.support.builders import (
    LOG_FILE_SIZE,
    UNITS_PER_FILE,
    a_store,
    put,
    read_all,
    store_config,
)
from tests.support.faulty_storage import FaultyStorage
from tests.support.time_steps import pass_time

if TYPE_CHECKING:
    from tests.support.clock import ManualClock

DELETED = Path("/store/deletedTopics.json")
QUARANTINE = Path("/store/quarantine.json")


def reopened(storage: FaultyStorage, clock: ManualClock) -> MessageStore:
    store = a_store(clock, storage)
    store.load()
    return store


async def test_a_killed_processs_writes_survive_a_power_cut_once_they_were_read(
    store, storage, clock
):
    put(store, keys="k")
    killed = storage.crash()
    found = reopened(killed, clock)
    assert len(read_all(found)) == 1
    found.close()

    found = reopened(killed.cut_power(), clock)

    assert len(read_all(found)) == 1
    assert len(found.query_message("TopicTest", "k", 32, 0, 1 << 60)) == 1
    found.close()


async def test_keys_are_found_after_a_power_cut_that_follows_a_clean_exit(storage, clock):
    store = reopened(storage, clock)
    await store.start()
    put(store, keys="k")
    await store.shutdown()

    found = reopened(storage.cut_power(), clock)

    assert len(found.query_message("TopicTest", "k", 32, 0, 1 << 60)) == 1
    found.close()


@pytest.mark.parametrize("seed", range(8))
async def test_units_of_a_deleted_topic_never_take_the_offsets_of_later_messages(
    store, storage, clock, seed
):
    for _ in range(3):
        put(store, body=b"old")
    await pass_time(clock, 70_000)
    store.delete_topic("TopicTest")
    put(store, body=b"new")
    assert await store.flush()

    found = reopened(storage.cut_power(Random(seed)), clock)

    assert [m.body for m in read_all(found)] == [b"new"]
    found.close()


async def test_a_deletion_interrupted_by_a_kill_is_completed_at_the_start(store, storage, clock):
    for number in range(3):
        put(store, queue_id=number)
    left: list[FaultyStorage] = []

    def killed_at_the_second_file(call: str) -> None:
        if call == "unlink" and not left and storage.calls["unlink"] % 2 == 0:
            left.append(storage.crash())

    storage.on_call = killed_at_the_second_file
    store.delete_topic("TopicTest")
    storage.on_call = None

    found = reopened(left[0], clock)

    assert found.topics() == []
    found.close()


async def test_returning_expired_files_bring_no_deleted_topic_back(store, storage, clock):
    while store.max_commit_log_offset < 2 * LOG_FILE_SIZE:
        put(store, body=b"x" * 5000)
    store.delete_topic("TopicTest")
    for _ in range(2):
        put(store, "Other", body=b"x" * 60_000)
    assert await store.flush()
    store.delete_expired_files_soon()
    await pass_time(clock, 75_000)
    assert b"TopicTest" not in (storage.read(DELETED) or b"")

    for seed in range(8):
        found = reopened(storage.cut_power(Random(seed)), clock)
        assert found.topics() == ["Other"]
        found.close()


async def test_messages_stored_after_truncated_damage_can_be_read(store, storage, clock):
    put(store)
    second = put(store, body=b"y" * 500)
    end = store.max_commit_log_offset
    killed = storage.crash()
    data = killed.files[Path("/store/commitlog/00000000000000000000")].data
    data[second.commit_log_offset + 4] ^= 1
    found = reopened(killed, clock)
    assert QUARANTINE in killed.files
    found.close()
    # The log now ends before the damage: its bytes and its unit are gone.
    data[second.commit_log_offset : end] = bytes(end - second.commit_log_offset)
    units = killed.files[Path("/store/consumequeue/TopicTest/0/00000000000000000000")].data
    units[20:40] = bytes(20)
    found = reopened(killed, clock)
    await found.start()

    third = put(found, body=b"third")

    assert third.commit_log_offset == second.commit_log_offset
    assert [m.body for m in read_all(found)] == [b"hello", b"third"]
    await found.shutdown()


async def test_a_time_is_found_beside_a_damaged_record(store, storage, clock):
    times = []
    for _ in range(9):
        clock.advance_ms(1000)
        times.append(put(store).store_timestamp)
    size = store.max_commit_log_offset // 9
    killed = storage.crash()
    data = killed.files[Path("/store/commitlog/00000000000000000000")].data
    data[4 * size : 5 * size] = b"\x7f" * size

    found = reopened(killed, clock)

    assert found.store_timestamp("TopicTest", 0, 4) == -1
    for number in [*range(4), *range(6, 9)]:
        assert found.offset_in_queue_by_time("TopicTest", 0, times[number]) == number
    # From the offset of the damaged message, which a pull skips.
    assert found.offset_in_queue_by_time("TopicTest", 0, times[5]) == 4
    found.close()


async def test_a_queue_file_that_gets_no_length_is_removed(store, storage):
    put(store)
    storage.fail("set_size", error=errno.ENOSPC)

    put(store, "Other")

    assert all(len(inode.data) > 0 for path, inode in storage.files.items() if "Other" in str(path))


async def test_a_second_start_writes_no_fillers_again(clock):
    storage = FaultyStorage()
    store = MessageStore(store_config(), clock, storage, bytes(8))
    store.load()
    await store.start()
    for _ in range(3):
        put(store)
    size = store.max_commit_log_offset // 3
    killed = storage.crash()
    killed.files[Path("/store/commitlog/00000000000000000000")].data[size : 2 * size] = bytes(size)
    killed.files[Path("/store/consumequeue/TopicTest/0/00000000000000000000")].data[:60] = bytes(60)
    reopened(killed, clock).close()

    again = a_store(clock, killed.crash()).load()

    assert again.units_written == 0
    await store.shutdown()


async def test_zeros_before_units_that_reached_the_disk_are_filled_in(store, storage, clock):
    for _ in range(UNITS_PER_FILE + 5):
        put(store)
    killed = storage.crash()
    first = killed.files[Path("/store/consumequeue/TopicTest/0/00000000000000000000")]
    first.data[40 * 20 :] = bytes(len(first.data) - 40 * 20)

    found = reopened(killed, clock)

    assert [m.queue_offset for m in read_all(found)] == list(range(UNITS_PER_FILE + 5))
    found.close()
