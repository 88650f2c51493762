"""A slave's store equals its master's, however the bytes arrive."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.errors import ReplicationError
from broker_core.message.sys_flag import TRANSACTION_PREPARED_TYPE
from tests.support.builders import HOST, a_store, put, read_all, store_config
from tests.support.faulty_storage import FaultyStorage

if TYPE_CHECKING:
    from broker_core.clock import Clock
    from broker_core.store.message_store import MessageStore

V6 = bytes(range(16)) + b"\0\0\x2a\x9f"


def a_mixture(store: MessageStore, count: int, seed: int = 7) -> None:
    """Put messages of every kind: other hosts, delays, timers, half, bare and long ones."""
    chance = random.Random(seed)
    for number in range(count):
        kind = number % 11
        more = {3: {"DELAY": "2"}, 6: {"TIMER_OUT_MS": str(1_795_252_759_675 + number)}}
        own = {3: "SCHEDULE_TOPIC_XXXX", 6: "rmq_sys_wheel_timer"}
        put(
            store,
            topic=("A", "B", own.get(kind, "C"))[number % 3],
            queue_id=chance.randrange(3),
            body=bytes(chance.randrange(600)) if kind else b"",
            tags=None if kind == 5 else f"tag{kind}",
            keys="one two" if kind == 2 else None,
            uniq_key=f"U{number}" if kind % 2 else None,
            sys_flag=TRANSACTION_PREPARED_TYPE if kind == 7 else 0,
            born_host=V6 if kind == 4 else HOST,
            more=more.get(kind, {"名": "值"}),
        )


def log_of(store: MessageStore) -> bytes:
    data = b""
    while (view := store.files.log.committed_view(len(data))) is not None:
        data += bytes(view)
    return data


def queues_of(store: MessageStore) -> dict[tuple[str, int], bytes]:
    """Return all units of each queue."""
    found = {}
    for queue in store.files.queues:
        units = b""
        while len(units) < 20 * queue.next_offset:
            units += bytes(queue.stored_units(len(units) // 20, 1_000))
        found[queue.topic, queue.queue_id] = units
    return found


def receive(store: MessageStore, data: bytes, size: int) -> None:
    """Append bytes as transfers do: never across the end of a file."""
    log = store.files.log
    while data:
        room = log.file_size - log.max_offset % log.file_size
        piece = data[: min(size, room)]
        log.append_data(memoryview(piece))
        store.replay.advance()
        data = data[len(piece) :]


def a_slave(clock: Clock, storage: FaultyStorage | None = None, **changes: Any) -> MessageStore:
    config = store_config(broker_role="SLAVE", max_index_num=20_000, **changes)
    store = a_store(clock, storage or FaultyStorage(), config)
    store.take_role(is_slave=True)
    store.load()
    return store


@pytest.fixture
async def master(clock):
    store = a_store(clock, FaultyStorage(), store_config(max_index_num=20_000))
    store.load()
    await store.start()
    yield store
    await store.shutdown()


@pytest.mark.parametrize("size", [1, 7, 100, 5_000, 300_000])
async def test_records_cut_anywhere_give_the_masters_queues(master, clock, size):
    a_mixture(master, 60 if size < 50 else 700)
    slave = a_slave(clock)
    await slave.start()
    receive(slave, log_of(master), size)

    assert log_of(slave) == log_of(master)
    assert queues_of(slave) == queues_of(master)
    assert slave.index_last_update == master.index_last_update
    assert slave.dispatch_behind_bytes == 0
    assert slave.put_total == master.put_total
    assert [m.body for m in read_all(slave, "B", 1)] == [m.body for m in read_all(master, "B", 1)]
    for key in ("one", "U9", "two"):
        assert len(slave.query_message("C", key, 64, 0, 1 << 60)) == len(
            master.query_message("C", key, 64, 0, 1 << 60)
        )
    await slave.shutdown()


async def test_arrivals_are_reported_with_their_messages(master, clock, storage):
    arrived = []
    slave = a_store(
        clock,
        storage,
        store_config(broker_role="SLAVE", flush_disk_type="SYNC_FLUSH"),
        on_arrival=lambda *place: arrived.append(place),
    )
    slave.take_role(is_slave=True)
    slave.load()
    await slave.start()
    put(master, queue_id=2)
    put(master, queue_id=2)
    receive(slave, log_of(master), 10_000)

    assert arrived == [("TopicTest", 2, 2)]
    assert len(read_all(slave, queue_id=2)) == 2, "a slave does not wait for its own disk"
    await slave.shutdown()


@pytest.mark.parametrize("size", [90, 300_000])
async def test_one_wrong_byte_anywhere_is_never_dispatched(master, clock, size):
    """In any part of a record: the log is cut before the record, or it's complete."""
    for number in range(4):
        put(master, body=b"b%d" % number * 40, tags="t", keys="k")
    data = log_of(master)
    record = len(data) // 4
    guarded = {*range(8), *range(28, 36), *range(84, 88 + 80)}
    for position in sorted(guarded):
        slave = a_slave(clock)
        await slave.start()
        wrong = bytearray(data)
        wrong[record * 2 + position] ^= 0x40
        # A size that is too long waits for bytes that never arrive; everything else is rejected.
        with contextlib.suppress(ReplicationError):
            receive(slave, bytes(wrong), size)
        assert slave.replay.dispatched_where == record * 2, position
        assert len(read_all(slave)) == 2
        slave.replay.cut()
        receive(slave, data[record * 2 :], size)
        assert log_of(slave) == data
        assert len(read_all(slave)) == 4
        await slave.shutdown()


async def test_a_full_disk_leaves_whole_messages_and_a_second_try_succeeds(master, clock):
    a_mixture(master, 300)
    data = log_of(master)
    for nth in range(1, 12):
        storage = FaultyStorage()
        slave = a_slave(clock, storage)
        await slave.start()
        storage.fail("allocate", nth=nth, error=28)
        try:
            receive(slave, data, 2_000)
        except OSError:
            storage.heal("allocate")
            slave.replay.cut()
            receive(slave, data[slave.max_commit_log_offset :], 2_000)
        assert log_of(slave) == data
        assert queues_of(slave) == queues_of(master)
        await slave.shutdown()


async def test_a_kill_at_any_byte_still_yields_the_masters_queues(master, clock):
    a_mixture(master, 40)
    data = log_of(master)
    for end in range(0, len(data), 397):
        storage = FaultyStorage()
        slave = a_slave(clock, storage)
        await slave.start()
        receive(slave, data[:end], 1_000)
        disk = storage.crash()
        await slave.shutdown()
        again = a_slave(clock, disk)
        await again.start()
        begin = again.max_commit_log_offset
        assert begin <= end
        receive(again, data[begin:], 1_000)
        assert queues_of(again) == queues_of(master), end
        assert again.index_last_update == master.index_last_update
        await again.shutdown()


async def test_a_slave_that_becomes_master_writes_after_the_last_whole_message(master, clock):
    for _ in range(3):
        put(master)
    data = log_of(master)
    slave = a_slave(clock)
    await slave.start()
    receive(slave, data[:-5], 100)
    assert slave.dispatch_behind_bytes > 0
    slave.take_role(is_slave=False)

    result = put(slave, body=b"mine")
    assert result.commit_log_offset == len(data) // 3 * 2
    assert result.queue_offset == 2
    assert [m.body for m in read_all(slave)] == [b"hello", b"hello", b"mine"]
    await slave.shutdown()


async def test_a_clean_exit_in_the_middle_of_a_message_is_not_damage(master, clock, storage):
    for _ in range(3):
        put(master)
    data = log_of(master)
    slave = a_slave(clock, storage)
    await slave.start()
    receive(slave, data[:-5], 100)
    await slave.shutdown()
    again = a_store(clock, storage, store_config(broker_role="SLAVE"))
    report = again.load()

    assert (report.clean_exit, report.damaged, report.truncated_bytes) == (True, [], 0)
    assert report.max_commit_log_offset == len(data) // 3 * 2
    again.close()


async def test_a_deleted_topic_on_a_slave_starts_over(master, clock):
    for _ in range(3):
        put(master, topic="gone")
    first = log_of(master)
    slave = a_slave(clock)
    await slave.start()
    receive(slave, first, 10_000)
    for store in (master, slave):
        store.delete_topic("gone")
    for _ in range(2):
        put(master, topic="gone")
    receive(slave, log_of(master)[len(first) :], 10_000)

    assert slave.max_offset_in_queue("gone", 0) == 2
    assert len(read_all(slave, "gone")) == 2
    await slave.shutdown()


@pytest.mark.parametrize("size", [7, 5_000, 300_000])
async def test_a_topic_recreated_before_the_slave_noticed_has_its_own_messages(master, clock, size):
    for number in range(900):
        put(master, topic="again", queue_id=number % 3, body=b"old" * 100)
    put(master, topic="other")
    master.delete_topic("again")
    for number in range(600):
        # Fewer than before, so that old units would follow the new ones.
        put(master, topic="again", queue_id=number % 2 + 1, body=b"new%d" % number)
    slave = a_slave(clock)
    await slave.start()
    receive(slave, log_of(master), size)

    for queue_id in (1, 2):
        assert [m.body for m in read_all(slave, "again", queue_id)] == [
            m.body for m in read_all(master, "again", queue_id)
        ]
    assert slave.queue_ids("again") == [1, 2]
    assert queues_of(slave) == queues_of(master)
    await slave.shutdown()


async def test_a_new_topics_queue_that_the_old_one_lacked_stays(master, clock):
    put(master, topic="again", queue_id=1, body=b"old")
    master.delete_topic("again")
    for queue_id in (0, 2, 1):
        put(master, topic="again", queue_id=queue_id, body=b"new")
    slave = a_slave(clock)
    await slave.start()
    receive(slave, log_of(master), 10_000)

    assert queues_of(slave) == queues_of(master)
    await slave.shutdown()


async def test_idle_old_queues_are_deleted_when_the_master_reports_the_topics_end(master, clock):
    for queue_id in (0, 1):
        put(master, topic="again", queue_id=queue_id, body=b"old")
    master.delete_topic("again")
    put(master, topic="again", queue_id=0, body=b"new")
    slave = a_slave(clock)
    await slave.start()
    receive(slave, log_of(master), 10_000)
    slave.delete_topics(master.deleted_topics())

    assert queues_of(slave) == queues_of(master)
    assert [m.body for m in read_all(slave, "again")] == [b"new"]
    await slave.shutdown()


async def test_late_messages_of_a_deleted_topic_create_no_queues(master, clock):
    for _ in range(3):
        put(master, topic="again", body=b"old")
    data = log_of(master)
    master.delete_topic("again")
    slave = a_slave(clock)
    await slave.start()
    receive(slave, data[: len(data) // 2], 10_000)
    slave.delete_topics(master.deleted_topics())
    put(master, topic="again", body=b"new")
    receive(slave, log_of(master)[len(data) // 2 :], 10_000)

    assert queues_of(slave) == queues_of(master)
    assert [m.body for m in read_all(slave, "again")] == [b"new"]
    await slave.shutdown()


async def test_a_kill_at_any_byte_leaves_the_topic_recreated(master, clock):
    for queue_id in (0, 1, 1):
        put(master, topic="again", queue_id=queue_id, body=b"old")
    master.delete_topic("again")
    for queue_id in (1, 0, 1, 0):
        put(master, topic="again", queue_id=queue_id, body=b"new")
    data = log_of(master)
    for end in range(0, len(data), 37):
        storage = FaultyStorage()
        slave = a_slave(clock, storage)
        await slave.start()
        receive(slave, data[: end // 2], 1_000)
        # It's killed after receiving the rest and before processing it.
        slave.files.log.append_data(memoryview(data[end // 2 : end]))
        disk = storage.crash()
        await slave.shutdown()
        again = a_slave(clock, disk)
        await again.start()
        receive(again, data[again.max_commit_log_offset :], 1_000)
        assert queues_of(again) == queues_of(master), end
        await again.shutdown()


@pytest.mark.parametrize("size", [7, 5_000, 300_000])
async def test_a_damaged_range_of_the_master_is_kept_and_skipped(master, clock, size):
    for number in range(900):
        put(master, queue_id=number % 2, body=b"%03d" % number * 100)
    data = bytearray(log_of(master))
    queue = master.files.queues.find("TopicTest", 0)
    first, (begin, length, _) = queue.unit(250)[0], queue.unit(251)
    last = begin + length
    assert last - first == 3 * length
    data[first:last] = bytes(last - first)
    storage = FaultyStorage()
    slave = a_slave(clock, storage)
    await slave.start()
    with pytest.raises(ReplicationError, match=f"offset {first}"):
        receive(slave, bytes(data), size)
    assert slave.replay.doubted_where == slave.max_commit_log_offset == first
    assert len(read_all(slave)) == 250, "earlier messages are served"

    slave.replay.step_over([(first, last)])
    receive(slave, bytes(data[first:]), size)

    assert log_of(slave) == bytes(data)
    for queue_id in (0, 1):
        assert slave.max_offset_in_queue("TopicTest", queue_id) == 450
    numbers = [int(m.body[:3]) for queue_id in (0, 1) for m in read_all(slave, queue_id=queue_id)]
    assert sorted(numbers) == [n for n in range(900) if n not in {500, 501, 502}]
    assert [known[:2] for known in slave.files.quarantine.ranges] == [(first, last)]
    disk = storage.crash()
    await slave.shutdown()
    again = a_slave(clock, disk)
    assert again.max_commit_log_offset == len(data)
    assert again.max_offset_in_queue("TopicTest", 1) == 450
    again.close()


@pytest.mark.parametrize("bit", [3, 20, 40, 62])
async def test_a_record_with_an_impossible_offset_fills_no_queue(master, clock, bit):
    for number in range(6):
        put(master, body=b"b%d" % number * 40)
    data = bytearray(log_of(master))
    record = len(data) // 6
    place = record * 3 + 20
    data[place : place + 8] = (3 ^ 1 << bit).to_bytes(8, "big")
    slave = a_slave(clock)
    await slave.start()

    receive(slave, bytes(data), 100)

    assert slave.max_offset_in_queue("TopicTest", 0) <= len(data) // 91
    assert len(read_all(slave)) >= 3
    await slave.shutdown()


@pytest.mark.parametrize("bulk_bytes", [4_096, 1 << 30])
@pytest.mark.parametrize("call", ["allocate", "set_size"])
async def test_a_full_disk_leaves_no_unit_or_key_for_a_missing_message(
    master, clock, monkeypatch, bulk_bytes, call
):
    monkeypatch.setattr("broker_core.store.replay.BULK_BYTES_MIN", bulk_bytes)
    for number in range(420):
        put(master, queue_id=number % 3, body=b"%03d" % number * 40, keys=f"k{number}")
    data = log_of(master)
    failures = 0
    for nth in range(1, 14):
        storage = FaultyStorage()
        slave = a_slave(clock, storage)
        await slave.start()
        storage.fail(call, nth=nth, error=28)
        try:
            receive(slave, data, 9_000)
        except OSError:
            failures += 1
            for queue in slave.files.queues:
                assert queue.end_commit_log_offset() <= slave.max_commit_log_offset
                assert queue.max_offset == queue.next_offset
            storage.heal(call)
            receive(slave, data[slave.max_commit_log_offset :], 9_000)
        for queue_id in range(3):
            assert len(read_all(slave, queue_id=queue_id)) == 140
        for key in ("k0", "k30", "k60", "k419"):
            assert len(slave.query_message("TopicTest", key, 32, 0, 1 << 60)) == 1
        await slave.shutdown()
    assert failures > 3
