"""Recovery at a start, after any kind of exit."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from broker_core.errors import StoreError
from broker_core.formats.cq_unit import FILLER_SIZE, UNIT
from broker_core.store.results import GetMessageStatus
from tests.support.builders import (
    LOG_FILE_SIZE,
    UNITS_PER_FILE,
    a_store,
    durable,
    get,
    put,
    read_all,
    recover,
    store_config,
)
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    from tests.support.faulty_storage import FaultyStorage

LOG = Path("/store/commitlog/00000000000000000000")
SECOND_LOG = Path("/store/commitlog") / f"{LOG_FILE_SIZE:020d}"
UNITS = Path("/store/consumequeue/TopicTest/0/00000000000000000000")


def reopened(storage: FaultyStorage, **changes: object):
    store = a_store(ManualClock(), storage, store_config(**changes))
    return store, store.load()


def bodies(store, topic: str = "TopicTest", queue_id: int = 0) -> list[bytes]:
    return [message.body for message in read_all(store, topic, queue_id)]


async def filled(
    storage: FaultyStorage, count: int, *, clean: bool = False, size: int = 0, **changes
):
    """Fill a store and end it as a kill or a shutdown does; return (storage, puts)."""
    store = a_store(ManualClock(), storage, store_config(**changes))
    store.load()
    await store.start()
    puts = [
        put(
            store,
            queue_id=n % 2,
            body=b"%d" % n + b"." * size,
            keys=f"key{n}",
            uniq_key=f"uniq{n:04d}",
        )
        for n in range(count)
    ]
    left = storage if clean else storage.crash()
    await store.shutdown()
    return left, puts


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("count", [0, 1, 10, 1000])
async def test_a_reopened_store_answers_the_same(storage, clean, count):
    left, puts = await filled(storage, count, clean=clean)

    store, report = reopened(left)

    assert report.clean_exit is clean
    assert (report.damaged, report.truncated_bytes) == ([], 0)
    for queue_id in (0, 1):
        assert bodies(store, queue_id=queue_id) == [b"%d" % n for n in range(queue_id, count, 2)]
    if puts:
        assert store.max_commit_log_offset == puts[-1].commit_log_offset + puts[-1].wrote_size
    for n in range(0, count, 97):
        (found,) = store.query_message("TopicTest", f"uniq{n:04d}", 32, 0, 1 << 60)
        assert len(found) == puts[n].wrote_size
        assert store.query_message("TopicTest", f"key{n}", 32, 0, 1 << 60) == [found]
    store.close()


@pytest.mark.parametrize("clean", [True, False])
async def test_a_reopened_store_continues_at_its_offset(storage, clean):
    left, puts = await filled(storage, 11, clean=clean)
    store, _ = reopened(left)
    await store.start()

    result = put(store)

    assert result.queue_offset == 6
    assert result.commit_log_offset == puts[-1].commit_log_offset + puts[-1].wrote_size
    assert len(bodies(store)) == 7
    await store.shutdown()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3, 40])
async def test_store_timestamps_do_not_go_back_across_a_restart(storage, clean, count):
    clock = ManualClock()
    store = a_store(clock, storage)
    store.load()
    await store.start()
    stored = 0
    for _ in range(count):
        clock.advance_ms(10)
        stored = put(store).store_timestamp
    left = storage if clean else storage.crash()
    await store.shutdown()
    clock.step_wall_clock_ms(-60_000)
    store = a_store(clock, left)
    store.load()
    await store.start()

    first = put(store)

    assert first.store_timestamp == stored
    await store.shutdown()


async def test_a_record_torn_at_any_byte_is_truncated_and_nothing_else(storage):
    left, puts = await filled(storage, 5)
    last = puts[-1]
    end = last.commit_log_offset + last.wrote_size

    for cut in range(last.commit_log_offset, end):
        torn = left.crash()
        torn.files[LOG].data[cut:end] = bytes(end - cut)
        # A unit is written after its record, so a torn record has none.
        torn.files[UNITS].data[2 * 20 : 3 * 20] = bytes(20)
        store, report = reopened(torn)

        assert bodies(store) == [b"0", b"2"], cut
        assert bodies(store, queue_id=1) == [b"1", b"3"], cut
        assert store.max_commit_log_offset == last.commit_log_offset, cut
        assert report.damaged == [], cut
        assert not any(torn.files[LOG].data[last.commit_log_offset :]), cut
        store.close()


async def test_a_record_that_never_reached_the_disk_is_truncated_with_its_unit(storage):
    left, puts = await filled(storage, 5)
    last = puts[-1]
    left.files[LOG].data[last.commit_log_offset :] = bytes(LOG_FILE_SIZE - last.commit_log_offset)

    store, _ = reopened(left)

    assert bodies(store) == [b"0", b"2"]
    await store.start()
    assert put(store).queue_offset == 2
    await store.shutdown()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("where", [0, 4, 8, 28, 88, 89])
@pytest.mark.parametrize("damaged", [0, 3, 9])
async def test_damage_is_kept_and_skipped(storage, clean, where, damaged):
    left, puts = await filled(storage, 10, clean=clean)
    hurt = puts[damaged]
    left.files[LOG].data[hurt.commit_log_offset + where] ^= 0x10
    before = bytes(left.files[LOG].data)

    store, report = reopened(left)

    assert [(found.offset_from, found.offset_to) for found in report.damaged] == [
        (hurt.commit_log_offset, hurt.commit_log_offset + hurt.wrote_size)
    ]
    for queue_id in (0, 1):
        assert bodies(store, queue_id=queue_id) == [
            b"%d" % n for n in range(queue_id, 10, 2) if n != damaged
        ]
        assert store.max_offset_in_queue("TopicTest", queue_id) == 5
    assert bytes(left.files[LOG].data) == before
    store.close()


@pytest.mark.parametrize("behind", [0, 100, 4095])
async def test_damage_to_the_last_record_is_kept_wherever_in_a_page_it_ends(storage, behind):
    left, puts = await filled(storage, 3)
    end = puts[-1].commit_log_offset + puts[-1].wrote_size
    store, _ = reopened(left)
    await store.start()
    overhead = put(store, queue_id=1, body=b"").wrote_size
    last = put(store, body=b"x" * (2 * 4096 + behind - end - 2 * overhead))
    left = left.crash()
    await store.shutdown()
    assert (last.commit_log_offset + last.wrote_size) % 4096 == behind
    left.files[LOG].data[last.commit_log_offset + 4] ^= 1

    store, report = reopened(left)

    assert [found.offset_from for found in report.damaged] == [last.commit_log_offset]
    assert store.max_offset_in_queue("TopicTest", 0) == last.queue_offset + 1
    store.close()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("size", [0, -1, -(1 << 31), LOG_FILE_SIZE])
async def test_a_start_ends_where_the_last_record_and_the_size_in_its_unit_are_damaged(
    storage, clean, size
):
    left, puts = await filled(storage, 3, clean=clean)
    last = puts[-1]
    left.files[LOG].data[last.commit_log_offset + 4] ^= 1
    offset, _, code = UNIT.unpack_from(left.files[UNITS].data, UNIT.size)
    assert offset == last.commit_log_offset
    UNIT.pack_into(left.files[UNITS].data, UNIT.size, offset, size, code)

    store, report = reopened(left)

    assert report.damaged == []
    assert store.max_commit_log_offset == last.commit_log_offset
    assert (bodies(store), bodies(store, queue_id=1)) == ([b"0"], [b"1"])
    store.close()


async def test_a_truncation_removes_units_of_later_damage(storage):
    left, puts = await filled(storage, 10)
    left.files[LOG].data[puts[6].commit_log_offset + 8] ^= 1
    store, _ = reopened(left)
    assert store.max_offset_in_queue("TopicTest", 0) == 5
    store.close()

    store = a_store(ManualClock(), left)
    store.load(cut_at=puts[6].commit_log_offset)

    assert store.max_offset_in_queue("TopicTest", 0) == 3
    assert store.runtime_info()["damagedRanges"] == "0"
    store.close()


async def test_damage_is_recorded_under_the_root_after_the_next_clean_start(storage):
    left, puts = await filled(storage, 10)
    left.files[LOG].data[puts[4].commit_log_offset + 8] ^= 1
    store, _ = reopened(left)
    await store.start()
    await store.shutdown()

    again, report = reopened(left)

    assert report.clean_exit
    assert Path("/store/quarantine.json") in left.files
    assert again.runtime_info()["damagedRanges"] == "1"
    assert bodies(again) == [b"0", b"2", b"6", b"8"]
    again.close()


async def test_a_pull_at_a_damaged_message_continues_after_it(storage):
    left, puts = await filled(storage, 10)
    left.files[LOG].data[puts[4].commit_log_offset + 8] ^= 1
    store, _ = reopened(left)

    result = get(store, 2, num=1)

    assert result.status in {GetMessageStatus.FOUND, GetMessageStatus.MESSAGE_WAS_REMOVING}
    assert result.next_begin_offset > 2
    store.close()


async def test_lost_messages_keep_their_offsets_without_units_too(storage):
    left, puts = await filled(storage, 10)
    for n in (4, 6):
        left.files[LOG].data[puts[n].commit_log_offset + 8] ^= 1
    for path in [path for path in left.files if "consumequeue" in path.parts]:
        del left.files[path]

    store, report = reopened(left)

    assert report.units_missing == 2
    assert [m.queue_offset for m in read_all(store)] == [0, 1, 4]
    assert UNIT.unpack_from(left.files[UNITS].data, 40) == (0, FILLER_SIZE, 0)
    store.close()


@pytest.mark.parametrize("field", [(15, 4), (20, 1), (90, 1)])
async def test_a_head_that_contradicts_the_queue_is_damage(storage, field):
    left, puts = await filled(storage, 10)
    position, bit = field
    left.files[LOG].data[puts[4].commit_log_offset + position] ^= bit

    store, report = reopened(left)

    assert [found.offset_from for found in report.damaged] == [puts[4].commit_log_offset]
    assert bodies(store) == [b"0", b"2", b"6", b"8"]
    assert store.topics() == ["TopicTest"]
    store.close()


async def test_missing_consume_queues_are_rebuilt_from_the_log(storage):
    left, _ = await filled(storage, 300, clean=True)
    for path in [path for path in left.files if "consumequeue" in path.parts]:
        del left.files[path]

    store, report = reopened(left)

    assert report.units_written == 300
    assert bodies(store) == [b"%d" % n for n in range(0, 300, 2)]
    store.close()


async def test_a_missing_index_is_not_an_obstacle(storage):
    left, _ = await filled(storage, 10, clean=True)
    for path in [path for path in left.files if path.parent.name == "index"]:
        del left.files[path]

    store, _ = reopened(left)

    assert len(bodies(store)) == 5
    store.close()


async def test_a_queue_may_start_anywhere(storage):
    """Older files of the log have expired, and the queues are gone."""
    left, puts = await filled(storage, 600, size=200)
    del left.files[LOG]
    for path in [path for path in left.files if "consumequeue" in path.parts]:
        del left.files[path]

    store, _ = reopened(left)

    first = next(n for n, p in enumerate(puts) if p.commit_log_offset >= LOG_FILE_SIZE)
    first += first % 2
    assert store.min_offset_in_queue("TopicTest", 0) == first // 2
    assert [m.queue_offset for m in read_all(store)] == list(range(first // 2, 300))
    store.close()


async def test_a_queue_file_left_without_its_length_by_a_kill_is_not_an_obstacle(storage):
    left, _ = await filled(storage, 10)
    path = max(path for path in left.files if "consumequeue" in path.parts)
    left.open(path).set_size(0)

    store, _ = reopened(left)

    assert len(read_all(store)) == 5
    store.close()


async def test_an_allocated_but_unused_file_is_removed(storage):
    left, _ = await filled(storage, 10)
    empty = left.open(SECOND_LOG, create=True)
    empty.set_size(LOG_FILE_SIZE)

    store, _ = reopened(left)

    assert SECOND_LOG not in left.files
    assert len(bodies(store)) == 5
    store.close()


async def test_a_kill_between_two_files_loses_nothing(storage):
    left, puts = await filled(storage, 400, size=200)
    first_of_second = next(p for p in puts if p.commit_log_offset == LOG_FILE_SIZE)
    del left.files[max(path for path in left.files if path.parent.name == "commitlog")]
    left.files[SECOND_LOG].data[:] = bytes(LOG_FILE_SIZE)

    store, report = reopened(left)

    assert report.max_commit_log_offset == LOG_FILE_SIZE
    assert len(bodies(store)) == (puts.index(first_of_second) + 1) // 2
    await store.start()
    assert put(store, "New").commit_log_offset == LOG_FILE_SIZE
    await store.shutdown()


async def test_stale_records_after_a_truncation_do_not_come_back(storage):
    """A real broker truncates without zeroing, so old records may follow newer ones."""
    left, puts = await filled(storage, 20)
    new = left.crash()
    first, second = puts[10], puts[11]
    at = first.commit_log_offset
    record = bytearray(new.files[LOG].data[puts[0].commit_log_offset :][: puts[0].wrote_size])
    record[28:36] = at.to_bytes(8, "big")
    record[20:28] = (5).to_bytes(8, "big")
    data = new.files[LOG].data
    data[at : at + len(record)] = record
    data[at + len(record) : second.commit_log_offset + 4] = bytes(
        second.commit_log_offset + 4 - at - len(record)
    )
    for queue_id in (0, 1):
        path = Path(f"/store/consumequeue/TopicTest/{queue_id}/00000000000000000000")
        units = new.files[path].data
        units[100:] = bytes(len(units) - 100)

    store, _ = reopened(new)

    numbers = [m.queue_offset for m in read_all(store)]
    assert numbers == sorted(set(numbers))
    store.close()


async def test_a_deleted_topic_does_not_come_back(storage):
    store = a_store(ManualClock(), storage)
    store.load()
    await store.start()
    for n in range(5):
        put(store, body=b"old%d" % n)
    store.delete_topic("TopicTest")
    for n in range(3):
        put(store, body=b"new%d" % n)
    left = storage.crash()
    await store.shutdown()

    again, _ = reopened(left)

    assert bodies(again) == [b"new0", b"new1", b"new2"]
    again.close()


@pytest.mark.parametrize("seed", range(20))
async def test_sync_flush_loses_nothing_in_a_power_cut(storage, seed):
    config = store_config(flush_disk_type="SYNC_FLUSH")
    store = a_store(ManualClock(), storage, config)
    store.load()
    await store.start()
    for n in range(30):
        await durable(store, put(store, queue_id=n % 2, body=b"%d" % n + b"." * 100))
    durable_to = store.max_commit_log_offset
    for n in range(30, 40):
        put(store, queue_id=n % 2, body=b"%d" % n + b"." * 100)
    left = storage.cut_power(random.Random(seed))
    await store.shutdown()

    again, _ = reopened(left)

    assert again.max_commit_log_offset >= durable_to
    for queue_id in (0, 1):
        numbers = [int(body.rstrip(b".")) for body in bodies(again, queue_id=queue_id)]
        assert numbers[:15] == list(range(queue_id, 30, 2))
        assert numbers == sorted(set(numbers))
    again.close()


@pytest.mark.parametrize("seed", range(10))
async def test_recovery_may_be_killed_and_restarted(storage, seed):
    left, puts = await filled(storage, 50)
    dice = random.Random(seed)
    left.files[LOG].data[puts[20].commit_log_offset + 90] ^= 1
    left.files[LOG].data[puts[-1].commit_log_offset + 50 :] = bytes(
        LOG_FILE_SIZE - puts[-1].commit_log_offset - 50
    )
    undisturbed, _ = reopened(left.crash())
    expected = [bodies(undisturbed, queue_id=q) for q in (0, 1)]
    undisturbed.close()

    for _ in range(3):
        left.fail(dice.choice(["allocate", "set_size", "write_atomically", "fdatasync"]), nth=1)
        try:
            reopened(left)[0].close()
        except StoreError:
            pass
        finally:
            for call in ("allocate", "set_size", "write_atomically", "fdatasync"):
                left.heal(call)
        left = left.crash()

    again, _ = reopened(left)
    assert [bodies(again, queue_id=q) for q in (0, 1)] == expected
    again.close()


async def test_the_lock_file_describes_itself(storage):
    store, _ = reopened(storage)

    assert bytes(storage.files[Path("/store/lock")].data) == b"lock"
    store.close()


async def test_two_stores_in_one_directory_are_rejected_by_name(storage):
    store, _ = reopened(storage)

    with pytest.raises(StoreError, match="/store is in use by another process"):
        reopened(storage)
    store.close()
    reopened(storage)[0].close()


async def test_another_file_size_is_rejected_by_name(storage):
    left, _ = await filled(storage, 1, clean=True)

    with pytest.raises(StoreError, match=f"{LOG} has {LOG_FILE_SIZE} bytes, but mapped"):
        reopened(left, mapped_file_size_commit_log=1 << 20)
    with pytest.raises(StoreError, match="mappedFileSizeConsumeQueue is 4000"):
        reopened(left, mapped_file_size_consume_queue=4000)
    with pytest.raises(StoreError, match="maxIndexNum lead to"):
        reopened(left, max_index_num=17)


async def test_a_missing_file_between_others_is_rejected(storage):
    left, _ = await filled(storage, 900, size=200, clean=True)
    assert SECOND_LOG in left.files
    del left.files[SECOND_LOG]

    with pytest.raises(StoreError, match="a file is missing before"):
        reopened(left)


async def test_a_full_disk_at_the_start_is_reported_in_one_sentence(storage):
    left, _ = await filled(storage, UNITS_PER_FILE, clean=True)
    for path in [path for path in left.files if "consumequeue" in path.parts]:
        del left.files[path]
    left.free_bytes = 0

    with pytest.raises(StoreError, match="no space left on the device for the store /store"):
        reopened(left)


async def test_recover_is_a_plain_call(storage):
    left, _ = await filled(storage, 10)

    report = recover(store_config(), ManualClock(), left)

    assert report.records == 10
    reopened(left)[0].close()


async def test_a_queue_without_its_middle_file_keeps_a_store_from_starting(storage):
    left, _ = await filled(storage, 2 * 3 * UNITS_PER_FILE, clean=True)
    del left.files[UNITS.with_name(f"{UNITS_PER_FILE * 20:020d}")]

    with pytest.raises(StoreError, match="a file is missing before 00000000000000004000"):
        reopened(left)


async def test_an_unknown_queue_has_no_units(storage):
    store, _ = reopened(storage)

    assert store.units("T", 0, 0, 10) == store.extended_units("T", 0, 0, 10) == []
    store.close()
