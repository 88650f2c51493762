"""Extensions of ConsumeQueue units: write, read, truncate, skip."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from broker_core.delivery.sql92.parser import compile_expression
from broker_core.delivery.sql_filter import FilterBits, SqlFilter
from broker_core.delivery.tag_filter import TagFilter
from broker_core.formats.cq_ext_unit import (
    ADDRESS_BASE,
    ADDRESS_MAX,
    END_MARK,
    CqExtUnit,
    decode,
    encode,
)
from broker_core.formats.cq_unit import FILLER_SIZE, UNIT
from broker_core.formats.record import decode as decode_record
from broker_core.message.names import RMQ_SYS_SCHEDULE_TOPIC
from broker_core.message.tags import tags_code
from broker_core.store.consume_queue_ext import ConsumeQueueExt
from broker_core.store.results import GetMessageResult, GetMessageStatus
from tests.support.builders import a_store, messages_of, put, store_config
from tests.support.clock import ManualClock
from tests.support.faulty_storage import FaultyStorage

if TYPE_CHECKING:
    from broker_core.store.message_store import MessageStore
    from broker_core.store.results import MessageFilter

FILE_SIZE = 300
CONFIG = store_config(enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=FILE_SIZE)
EXT = Path("/store/consumequeue_ext")
QUEUE = EXT / "TopicTest" / "0"
FIRST = "0" * 20


def bit_map_of(topic: str, properties: str) -> bytes:
    return b"\x0f" if "red" in properties else b"\xf0"


def opened(storage: FaultyStorage, clock: ManualClock | None = None) -> MessageStore:
    store = a_store(clock or ManualClock(), storage, CONFIG, bit_map_of)
    store.load()
    return store


async def started(storage: FaultyStorage, clock: ManualClock | None = None) -> MessageStore:
    store = opened(storage, clock)
    await store.start()
    return store


def units_of(storage: FaultyStorage, topic: str = "TopicTest") -> list[tuple[int, int, int]]:
    """Return a queue's units on disk."""
    directory = Path("/store/consumequeue") / topic / "0"
    data = b"".join(
        bytes(inode.data)
        for path, inode in sorted(storage.files.items())
        if path.parent == directory
    )
    return [unit for unit in UNIT.iter_unpack(data) if unit[1] > 0]


def ext_of(storage: FaultyStorage, address: int, directory: Path = QUEUE) -> CqExtUnit | None:
    start, position = divmod(address - ADDRESS_BASE, FILE_SIZE)
    return decode(bytes(storage.files[directory / f"{start * FILE_SIZE:020d}"].data), position)


def ext_files(storage: FaultyStorage) -> list[Path]:
    return sorted(path for path in storage.files if "consumequeue_ext" in path.parts)


def bodies(store: MessageStore, target: MessageFilter, topic: str = "TopicTest") -> list[bytes]:
    found: list[bytes] = []
    queue_offset = store.min_offset_in_queue(topic, 0)
    while True:
        result = store.get_message(topic, 0, queue_offset, 32, target)
        assert isinstance(result, GetMessageResult)
        if result.status is GetMessageStatus.OFFSET_OVERFLOW_ONE:
            return found
        found += [bytes(message.body) for message in messages_of(result)]
        queue_offset = result.next_begin_offset


async def test_units_lead_to_extensions_with_codes_times_and_bitmaps() -> None:
    storage, clock = FaultyStorage(), ManualClock()
    store = await started(storage, clock)
    times = []
    for tags in ("A", None, "B"):
        clock.advance_ms(10)
        times.append(clock.now_ms())
        put(store, tags=tags, more={"colour": "red"} if tags == "A" else {})

    addresses = [code for _, _, code in units_of(storage)]

    assert addresses == [ADDRESS_BASE, ADDRESS_BASE + 21, ADDRESS_BASE + 42]
    assert [ext_of(storage, address) for address in addresses] == [
        CqExtUnit(tags_code("A"), times[0], b"\x0f"),
        CqExtUnit(0, times[1], b"\xf0"),
        CqExtUnit(tags_code("B"), times[2], b"\xf0"),
    ]
    assert [code for _, _, code in store.units("TopicTest", 0, 0, 9)] == [
        tags_code("A"),
        0,
        tags_code("B"),
    ]
    await store.shutdown()


async def test_no_unit_crosses_files_and_their_ends_are_marked() -> None:
    storage = FaultyStorage()
    store = await started(storage)
    for _ in range(32):
        put(store)
    await store.shutdown()

    # 14 units of 21 bytes, and not in the last four bytes.
    assert [path.name for path in ext_files(storage)] == [f"{n * 300:020d}" for n in range(3)]
    for n in range(2):
        data = bytes(storage.files[QUEUE / f"{n * 300:020d}"].data)
        assert data[294:] == END_MARK + bytes(4)
    addresses = [code - ADDRESS_BASE for _, _, code in units_of(storage)]
    assert addresses == [n // 14 * 300 + n % 14 * 21 for n in range(32)]


def test_the_files_are_rocketmqs() -> None:
    """The files that ConsumeQueueExt of 4.9.7 writes for these units, with a size of 100 bytes."""
    storage = FaultyStorage()
    ext = ConsumeQueueExt("T", 0, QUEUE, 100, storage, lambda files, start: None)
    ext.load(None, trust_end=True)
    first = CqExtUnit(tags_code("TagA"), 1_795_252_759_675, bytes(range(14)))
    empty = CqExtUnit(-1, 1, b"")

    addresses = [ext.put(unit) for unit in (first, empty, CqExtUnit(-1, 1, bytes(5)), empty, empty)]

    assert addresses == [
        -9223372036854775808,
        -9223372036854775774,
        -9223372036854775754,
        -9223372036854775708,
        -9223372036854775688,
    ]
    assert storage.files[QUEUE / FIRST].data.hex() == (
        "0022000000000027a807000001a1fd672c7b000e000102030405060708090a0b0c0d"
        "0014ffffffffffffffff00000000000000010000"
        "0019ffffffffffffffff000000000000000100050000000000"
        "ffff" + "00" * 19
    )
    assert storage.files[QUEUE / "00000000000000000100"].data.hex() == (
        "0014ffffffffffffffff00000000000000010000" * 2 + "00" * 60
    )


def test_a_unit_that_fits_no_file_is_not_written() -> None:
    storage = FaultyStorage()
    ext = ConsumeQueueExt("T", 0, QUEUE, FILE_SIZE, storage, lambda files, start: None)
    ext.load(None, trust_end=True)

    assert ext.put(CqExtUnit(1, 1, bytes(277))) is None
    assert ext.put(CqExtUnit(1, 1, bytes(276))) == ADDRESS_BASE
    assert ext.put(CqExtUnit(1, 1, b"")) == ADDRESS_BASE + FILE_SIZE


@pytest.mark.parametrize("hurt", [(0, 1), (18, 1), (2, 8), (10, 8)])
def test_units_are_compared_whole(hurt: tuple[int, int]) -> None:
    position, size = hurt
    storage = FaultyStorage()
    ext = ConsumeQueueExt("T", 0, QUEUE, FILE_SIZE, storage, lambda files, start: None)
    ext.load(None, trust_end=True)
    addresses = [ext.put(CqExtUnit(5, 7, b"\x0f")) for _ in range(2)]
    ask = [np.array(column, np.int64) for column in (addresses, [5, 5], [7, 7])]
    assert ext.sizes(*ask).tolist() == [21, 21]

    data = storage.files[QUEUE / FIRST].data
    for at in range(position, position + size):
        data[at] ^= 1

    assert ext.sizes(*ask).tolist() == [-1, 21]


def test_a_unit_that_reaches_into_its_files_end_is_invalid() -> None:
    storage = FaultyStorage()
    ext = ConsumeQueueExt("T", 0, QUEUE, FILE_SIZE, storage, lambda files, start: None)
    ext.load(None, trust_end=True)
    address = ext.put(CqExtUnit(5, 7, bytes(270)))
    assert address == ADDRESS_BASE
    ask = [np.array([number], np.int64) for number in (address, 5, 7)]
    assert ext.sizes(*ask).tolist() == [290]
    data = storage.files[QUEUE / FIRST].data

    data[:20] = encode(CqExtUnit(5, 7, bytes(277)))[:20]

    assert ext.sizes(*ask).tolist() == [-1]


async def test_without_space_for_an_extension_the_unit_has_the_plain_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = FaultyStorage()
    store = await started(storage)
    put(store, tags="A")

    def full(ext: ConsumeQueueExt, unit: CqExtUnit) -> int:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(ConsumeQueueExt, "put", full)
    put(store, tags="B")
    monkeypatch.undo()
    put(store, tags="A")
    await store.shutdown()

    assert [code for _, _, code in units_of(storage)] == [
        ADDRESS_BASE,
        tags_code("B"),
        ADDRESS_BASE + 21,
    ]
    store = opened(storage)
    assert [code for _, _, code in store.units("TopicTest", 0, 0, 9)] == [
        tags_code("A"),
        tags_code("B"),
        tags_code("A"),
    ]
    store.close()


async def test_filters_read_the_extension() -> None:
    storage, clock = FaultyStorage(), ManualClock()
    store = await started(storage, clock)
    for n, tags in enumerate("ABAB"):
        clock.advance_ms(1)
        put(store, body=b"%d" % n, tags=tags, more={"colour": "red"} if n < 2 else {})
    born_time = clock.now_ms() - 3
    sql = compile_expression("colour = 'red' OR TAGS = 'A'")

    assert bodies(store, TagFilter(frozenset({tags_code("A")}))) == [b"0", b"2"]
    # The bitmap of 2 says no, although the expression says yes: the record wasn't read.
    assert bodies(store, SqlFilter(sql, FilterBits(b"\x01", born_time - 1))) == [b"0", b"1"]
    # A newer filter, or one with other bitmaps, decides by the record.
    assert bodies(store, SqlFilter(sql, FilterBits(b"\x01", clock.now_ms()))) == [b"0", b"1", b"2"]
    assert bodies(store, SqlFilter(sql, FilterBits(b"\x01\0", 0))) == [b"0", b"1", b"2"]
    assert bodies(store, SqlFilter(sql)) == [b"0", b"1", b"2"]
    await store.shutdown()


async def test_a_message_with_an_unreadable_extension_is_left_to_the_client() -> None:
    storage = FaultyStorage()
    store = await started(storage)
    put(store, body=b"1", tags="A")
    put(store, body=b"2", tags="B")
    await store.shutdown()
    storage.files[QUEUE / FIRST].data[:2] = b"\0\0"
    store = opened(storage)

    assert bodies(store, TagFilter(frozenset({tags_code("C")}))) == [b"1"]
    assert [code for _, _, code in store.units("TopicTest", 0, 0, 9)] == [0, tags_code("B")]
    store.close()


async def test_delayed_messages_are_due_by_their_extension_or_by_their_record() -> None:
    storage, clock = FaultyStorage(), ManualClock()
    store = await started(storage, clock)
    put(store, RMQ_SYS_SCHEDULE_TOPIC, 0, more={"DELAY": "1"})
    due = clock.now_ms() + 1000

    assert [code for _, _, code in store.units(RMQ_SYS_SCHEDULE_TOPIC, 0, 0, 1)] == [due]
    ((_, _, address),) = units_of(storage, RMQ_SYS_SCHEDULE_TOPIC)
    assert address <= ADDRESS_MAX
    await store.shutdown()
    for path in ext_files(storage):
        del storage.files[path]
    store = opened(storage)
    assert [code for _, _, code in store.units(RMQ_SYS_SCHEDULE_TOPIC, 0, 0, 1)] == [due]
    store.close()


async def test_a_store_with_extensions_from_an_earlier_life_is_read_without_them() -> None:
    storage, clock = FaultyStorage(), ManualClock()
    store = await started(storage, clock)
    put(store, body=b"1", tags="A")
    await store.shutdown()
    config = store_config()

    store = a_store(clock, storage, config)
    store.load()
    await store.start()
    put(store, body=b"2", tags="A")
    put(store, body=b"3", tags="B")
    assert bodies(store, TagFilter(frozenset({tags_code("A")}))) == [b"1", b"2"]
    await store.shutdown()

    store = await started(storage, clock)
    put(store, body=b"4", tags="A")
    assert bodies(store, TagFilter(frozenset({tags_code("A")}))) == [b"1", b"2", b"4"]
    codes = [code for _, _, code in units_of(storage)]
    assert codes == [ADDRESS_BASE, tags_code("A"), tags_code("B"), ADDRESS_BASE + 21]
    await store.shutdown()


async def test_nothing_is_written_unless_requested() -> None:
    storage = FaultyStorage()
    store = a_store(ManualClock(), storage, None, bit_map_of)
    store.load()
    await store.start()
    put(store, tags="A")
    await store.shutdown()

    assert not storage.exists(EXT)
    assert [code for _, _, code in units_of(storage)] == [tags_code("A")]


async def test_batches_also_have_extensions() -> None:
    storage = FaultyStorage()
    store = await started(storage)
    properties = b"TAGS\x01A\x02colour\x01red"
    item = b"".join(v.to_bytes(4, "big") for v in (23 + len(properties), 0, 0, 0, 1)) + b"x"
    item += len(properties).to_bytes(2, "big") + properties
    result = store.put_batch(
        "TopicTest", 0, item * 2, "", sys_flag=0, born_timestamp=1, born_host=bytes(8)
    )

    assert [code for _, _, code in units_of(storage)] == [ADDRESS_BASE, ADDRESS_BASE + 21]
    expected = CqExtUnit(tags_code("A"), result.store_timestamp, b"\x0f")
    assert ext_of(storage, ADDRESS_BASE + 21) == expected
    await store.shutdown()


async def test_recovery_writes_the_bytes_of_the_put_path() -> None:
    storage, clock = FaultyStorage(), ManualClock()
    store = await started(storage, clock)
    for n in range(100):
        clock.advance_ms(3)
        put(store, queue_id=n % 2, tags=f"T{n % 3}", more={"colour": "red"} if n % 5 else {})
    left = storage.crash()
    await store.shutdown()
    expected = {path: bytes(inode.data) for path, inode in left.files.items()}
    for path in [path for path in left.files if "consumequeue" in str(path)]:
        del left.files[path]

    opened(left).close()

    kept = [path for path in expected if "consumequeue" in str(path)]
    assert len(kept) == 10
    for path in kept:
        assert bytes(left.files[path].data) == expected[path], path


@pytest.mark.parametrize("seed", range(20))
async def test_after_a_power_cut_every_code_belongs_to_its_message(seed: int) -> None:
    dice = random.Random(seed)
    storage, clock = FaultyStorage(), ManualClock()
    store = await started(storage, clock)
    for n in range(150):
        clock.advance_ms(3)
        put(store, body=b"%d" % n, tags=f"T{n % 3}")
        if n == dice.randrange(150):
            await store.flush()
    left = storage.cut_power(dice)
    await store.shutdown()

    for _ in range(2):
        store = await started(left, clock)
        for n in range(30):
            put(store, tags=f"T{n % 3}", more={"colour": "red"})
        check_codes(store)
        await store.shutdown()


def check_codes(store: MessageStore, *, is_extended: bool = True) -> None:
    """Check that each readable message has the code of its tags, or no code without extensions."""
    seen, queue_offset = 0, store.min_offset_in_queue("TopicTest", 0)
    while units := store.units("TopicTest", 0, queue_offset, 32):
        for commit_log_offset, size, code in units:
            record = None if size == FILLER_SIZE else store.look_message(commit_log_offset)
            if record is not None:
                expected = tags_code(decode_record(record).tags)
                assert code == expected or (code == 0 and not is_extended)
                seen += 1
        queue_offset += len(units)
    assert seen


@pytest.mark.parametrize("seed", range(15))
async def test_codes_never_belong_to_another_message_whatever_happens_to_a_store(seed: int) -> None:
    dice = random.Random(seed)
    storage, clock = FaultyStorage(), ManualClock()
    for _ in range(5):
        config = store_config(
            enable_consume_queue_ext=dice.random() < 0.8,
            mapped_file_size_consume_queue_ext=FILE_SIZE,
        )
        store = a_store(clock, storage, config, bit_map_of)
        store.load()
        await store.start()
        for _ in range(dice.randrange(100)):
            clock.advance_ms(dice.randrange(5))
            if dice.random() < 0.02:
                store.delete_topic("TopicTest")
            elif dice.random() < 0.03:
                await store.flush()
            else:
                put(store, body=bytes(dice.randrange(900)), tags=dice.choice([None, "T1", "T2"]))
        put(store, tags="T2")
        check_codes(store, is_extended=config.enable_consume_queue_ext)
        left = {"clean": storage, "kill": storage.crash(), "power": storage.cut_power(dice)}
        end = dice.choice(list(left))
        await store.shutdown()
        storage = left[end]


async def test_a_deleted_topic_leaves_no_extension() -> None:
    storage = FaultyStorage()
    store = await started(storage)
    put(store)
    put(store, "other")

    store.delete_topic("TopicTest")

    assert ext_files(storage) == [EXT / "other" / "0" / FIRST]
    assert not storage.is_directory(EXT / "TopicTest")
    put(store, tags="A")
    assert [code for _, _, code in units_of(storage)] == [ADDRESS_BASE]
    await store.shutdown()


async def test_extensions_of_expired_messages_are_deleted() -> None:
    storage = FaultyStorage()
    store = await started(storage)
    while store.max_commit_log_offset < 200_000:
        put(store, body=bytes(900))
    before = len(ext_files(storage))

    queue = store.files.queues.table["TopicTest"][0]
    store.files.log.delete_first()
    queue.delete_before(store.min_commit_log_offset)
    queue.correct_min_offset(store.min_commit_log_offset)

    assert 0 < len(ext_files(storage)) < before
    unit = queue.unit(queue.min_offset)
    assert unit is not None
    assert queue.ext_unit(unit[2]) is not None
    put(store, body=b"x")
    await store.shutdown()
    store = opened(storage)
    assert store.max_offset_in_queue("TopicTest", 0) > 0
    store.close()


async def test_a_lost_messages_unit_without_its_extension_loses_its_address() -> None:
    storage = FaultyStorage()
    running = await started(storage)
    puts = [put(running, tags="A") for _ in range(3)]
    left = storage.crash()
    await running.shutdown()
    left.files[Path("/store/commitlog") / FIRST].data[puts[1].commit_log_offset + 8] ^= 1
    left.files[QUEUE / FIRST].data[21:23] = bytes(2)

    store = a_store(ManualClock(), left, CONFIG, bit_map_of)
    report = store.load()

    assert (report.units_written, report.units_missing) == (1, 1)
    assert [code for _, _, code in units_of(left)] == [ADDRESS_BASE, 0, ADDRESS_BASE + 42]
    assert [queue.topic for queue in store.files.queues.dirty] == ["TopicTest"]
    store.close()
