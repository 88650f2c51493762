"""Messages by key and time."""

from __future__ import annotations

import itertools
import random
import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from broker_core.errors import StoreError
from broker_core.formats import record
from broker_core.formats.index_entry import ENTRY, HEADER, SLOT, file_size, key_hash
from broker_core.message.tags import index_hash
from broker_core.native import loading
from broker_core.store.index_file import IndexFile
from tests.support.builders import a_store, put, store_config
from tests.support.clock import ManualClock
from tests.support.faulty_storage import FaultyStorage

NEVER_DUE = 1 << 60
write_entries = loading.load({}).write_entries


def found(store, key: str, begin: int = 0, end: int = NEVER_DUE, num: int = 32) -> list[bytes]:
    views = store.query_message("TopicTest", key, num, begin, end)
    return [record.decode(view).body for view in views]


async def test_a_message_is_found_by_each_of_its_keys(store):
    put(store, body=b"one", keys="red  green", uniq_key="U1")

    assert found(store, "red") == found(store, "green") == found(store, "U1") == [b"one"]
    assert found(store, "blue") == found(store, "red green") == found(store, "") == []


async def test_messages_of_one_key_are_ordered_oldest_first(store):
    for n in range(5):
        put(store, body=b"%d" % n, keys="k")

    assert found(store, "k") == [b"0", b"1", b"2", b"3", b"4"]


async def test_the_newest_are_kept_when_there_are_too_many(store):
    for n in range(5):
        put(store, body=b"%d" % n, keys="k")

    assert found(store, "k", num=2) == [b"3", b"4"]


async def test_keys_with_the_same_hash_are_distinguished(store):
    put(store, body=b"a", keys="AaAa")
    put(store, body=b"b", keys="BBBB")

    assert found(store, "AaAa") == [b"a"]
    assert found(store, "BBBB") == [b"b"]


async def test_records_of_other_keys_with_the_same_hash_need_no_checksum(store, monkeypatch):
    """Sixty-four messages of 4 MB each took a tenth of a second."""
    put(store, body=b"a" * 100_000, keys="AaAa")
    put(store, body=b"b", keys="BBBB")
    sizes = []

    def crc32(data: memoryview) -> int:
        sizes.append(len(data))
        return zlib.crc32(data)

    monkeypatch.setattr(record, "zlib", SimpleNamespace(crc32=crc32))

    assert found(store, "BBBB") == [b"b"]
    assert max(sizes) == 1


async def test_a_key_belongs_to_its_topic(store):
    put(store, "Other", keys="k")

    assert found(store, "k") == []


async def test_times_limit_the_search(store, clock):
    times = []
    for n in range(4):
        times.append(put(store, body=b"%d" % n, keys="k").store_timestamp)
        clock.advance_ms(10_000)

    assert found(store, "k", begin=times[1], end=times[2]) == [b"1", b"2"]
    assert found(store, "k", begin=times[3] + 5_000) == []
    assert found(store, "k", end=times[0] - 5_000) == []


async def test_a_full_file_is_followed_by_another(store, storage, clock):
    for n in range(1000):
        put(store, body=b"%d" % n, uniq_key=f"uniq{n}")
        clock.advance_ms(1)

    assert len([path for path in storage.files if path.parent.name == "index"]) == 3
    for n in (0, 398, 399, 400, 999):
        assert found(store, f"uniq{n}") == [b"%d" % n]


async def test_the_header_names_the_first_and_last_message(store, storage, clock):
    first = put(store, keys="a")
    clock.advance_ms(2500)
    last = put(store, keys="b")
    assert found(store, "b")  # which writes pending entries

    data = next(i.data for path, i in storage.files.items() if path.parent.name == "index")
    assert HEADER.unpack_from(data) == (
        first.store_timestamp,
        last.store_timestamp,
        first.commit_log_offset,
        last.commit_log_offset,
        2,
        3,
    )


async def test_keys_of_a_batch_are_found(store):
    item = b"a" * 3
    properties = b"KEYS\x01bk"
    head = [20 + 3 + 2 + len(properties), 0, 0, 0, 3]
    body = b"".join(v.to_bytes(4, "big") for v in head) + item
    body += len(properties).to_bytes(2, "big") + properties

    store.put_batch("TopicTest", 0, body, "", sys_flag=0, born_timestamp=0, born_host=bytes(8))

    assert found(store, "bk") == [b"aaa"]


async def test_after_a_kill_the_chains_are_whole(clock, storage):
    store = a_store(clock, storage)
    store.load()
    await store.start()
    for n in range(300):
        put(store, body=b"%d" % n, keys=f"k{n % 7}")
    left = storage.crash()
    await store.shutdown()

    again = a_store(clock, left)
    again.load()

    assert found(again, "k3", num=64) == [b"%d" % n for n in range(3, 300, 7)]
    again.close()


async def test_a_torn_index_is_rebuilt(clock, storage):
    store = a_store(clock, storage)
    store.load()
    await store.start()
    for n in range(300):
        put(store, body=b"%d" % n, keys=f"k{n}")
    left = storage.crash()
    await store.shutdown()
    index = next(path for path in left.files if path.parent.name == "index")
    left.files[index].data[40:200] = bytes(160)

    again = a_store(clock, left)
    again.load()

    assert all(found(again, f"k{n}") == [b"%d" % n] for n in range(300))
    again.close()


async def test_without_an_index_nothing_is_found_and_no_file_created(clock, storage):
    store = a_store(clock, storage, store_config(message_index_enable=False))
    store.load()
    await store.start()
    put(store, keys="k")

    assert found(store, "k") == []
    assert not [path for path in storage.files if path.parent.name == "index"]
    await store.shutdown()


async def test_a_message_with_more_keys_than_a_file_has_entries_is_stored(store):
    put(store, body=b"many", keys=" ".join(f"k{n}" for n in range(1000)))
    put(store, body=b"after", keys="after")

    assert found(store, "k0") == [b"many"]
    assert found(store, "after") == [b"after"]


async def test_a_message_without_keys_creates_no_index_file(store, storage):
    put(store)

    assert not [path for path in storage.files if path.parent.name == "index"]


@pytest.mark.parametrize("seed", range(6))
async def test_entries_written_in_bulk_equal_those_written_one_by_one(seed):
    dice = random.Random(seed)
    words = ["a", "AaAa", "BBBB", "订单", *(f"order{n}" for n in range(30))]
    alike = seed % 2 == 0
    messages = [
        (
            f"{n:032X}" if alike else dice.choice([None, f"U{n}", "x" * 300]),
            None if alike else dice.choice([None, " ".join(dice.choices(words, k=3))]),
            dice.choice([0, 0, 5, 4000]),
        )
        for n in range(900)
    ]

    written = []
    for writes_each, native in itertools.product((True, False), (None, write_entries)):
        clock, storage = ManualClock(), FaultyStorage()
        store = a_store(clock, storage)
        if native is not None:
            assert store.files.index is not None
            store.files.index.use(native)
        store.load()
        await store.start()
        for uniq_key, keys, passing_ms in messages:
            put(store, uniq_key=uniq_key, keys=keys)
            clock.advance_ms(passing_ms)
            if writes_each:
                found(store, "nothing")
        found(store, "nothing")
        files = sorted(path for path in storage.files if path.parent.name == "index")
        written.append([bytes(storage.files[path].data) for path in files])
        await store.shutdown()

    assert [each == written[0] for each in written] == [True] * 4


@pytest.mark.skipif(write_entries is None, reason="no compiled turn")
@pytest.mark.parametrize("is_by_arrays", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_the_compiled_turn_writes_the_same_entries_as_python(seed, is_by_arrays):
    dice = random.Random(seed)
    slot_num, entry_num = 7, 60
    before = bytearray(file_size(slot_num, entry_num))
    HEADER.pack_into(before, 0, *([dice.choice([0, 90_000])] * 2), 0, 0, 0, 1)
    for slot in range(slot_num):
        # Stale ones: positions at or after the current one aren't part of the chain.
        stale = [1, 5, 30] if is_by_arrays else [-1, 70]
        SLOT.pack_into(before, 40 + 4 * slot, dice.choice([0, 0, *stale]))
    files = []
    for _ in range(2):
        file = FaultyStorage().open(Path("/index"), create=True)
        file.set_size(len(before))
        mapped = file.map()
        mapped[:] = before
        files.append((IndexFile(file, slot_num, entry_num), mapped))
    (python, by_python), (native, by_native) = files
    now = 100_000

    while not python.is_full:
        waiting = []
        for number in range(dice.randrange(8)):
            now += dice.choice([-3_000, 0, 900, 5_000])
            uniq_key = dice.choice([None, "", "größe", "订单🚀", f"U{dice.randrange(9)}"])
            keys = dice.choice([None, "", "a", " a  b ", "AaAa BBBB é"])
            waiting.append((dice.randrange(1 << 32), uniq_key, keys, number, now))
        entries = [
            (key_hash(index_hash(entry_seed, word)), offset, time)
            for entry_seed, uniq_key, keys, offset, time in waiting
            for word in [uniq_key, *(keys or "").split(" ")]
            if word
        ][: entry_num - python.count]
        if is_by_arrays and entries:
            python.put_all(*np.array(entries, np.int64).T)
        for entry in [] if is_by_arrays else entries:
            python.put(*entry)
        assert write_entries is not None
        assert native.put_waiting(write_entries, waiting)

        assert by_native == by_python
        assert native.count == python.count


@pytest.mark.parametrize(("used", "found_used"), [(0x7FFFFFFF, 7), (-5, 0), (3, 3)])
def test_a_damaged_count_of_used_slots_hides_no_entry(used, found_used):
    file = FaultyStorage().open(Path("/index"), create=True)
    file.set_size(file_size(7, 60))
    HEADER.pack_into(file.map(), 0, 1_000, 1_000, 0, 0, used, 1)
    index = IndexFile(file, 7, 60)
    assert index.used_slots == found_used

    index.put(5, 100, 2_000)

    assert index.find(5, 0, NEVER_DUE, 32) == [100]


def test_a_key_that_is_not_text_leaves_everything_to_python():
    file = FaultyStorage().open(Path("/index"), create=True)
    file.set_size(file_size(7, 60))
    index = IndexFile(file, 7, 60)

    is_taken = write_entries is not None and index.put_waiting(
        write_entries, [(1, "a", None, 0, 1), (1, "\ud800", None, 0, 1)]
    )

    assert not is_taken
    assert index.count == 1


async def left_index(clock, storage, count: int = 300):
    """Leave an index file of one entry a message."""
    store = a_store(clock, storage)
    store.load()
    await store.start()
    for n in range(count):
        put(store, body=b"%d" % n, keys=f"k{n % 50}")
    await store.shutdown()
    return next(path for path in storage.files if path.parent.name == "index")


async def test_a_created_but_unsized_index_file_is_removed(clock, storage):
    path = await left_index(clock, storage)
    empty = path.with_name("20991231235959999")
    storage.open(empty, create=True).close()

    store = a_store(clock, storage)
    store.load()

    assert empty not in storage.files
    assert found(store, "k7") == [b"%d" % n for n in range(7, 300, 50)]
    store.close()


async def test_an_invalid_index_file_is_skipped(clock, storage):
    path = await left_index(clock, storage)
    note = path.with_name("note.txt")
    storage.open(note, create=True).close()

    store = a_store(clock, storage)
    store.load()

    assert note in storage.files
    assert found(store, "k7") == [b"%d" % n for n in range(7, 300, 50)]
    store.close()


async def test_an_index_file_of_another_size_keeps_a_store_from_starting(clock, storage):
    path = await left_index(clock, storage)
    storage.files[path].data = bytearray(100)

    with pytest.raises(StoreError, match="has 100 bytes, but maxHashSlotNum and maxIndexNum"):
        a_store(clock, storage).load()


SLOTS = 100
ENTRIES_FROM = HEADER.size + SLOTS * 4


@pytest.mark.parametrize("low", [1, 2, 100, 200])
@pytest.mark.parametrize("damage", ["slot", "previous", "hash", "none"])
async def test_chains_torn_by_a_power_cut_are_rebuilt_from_the_entries_before(
    clock, storage, low, damage
):
    path = await left_index(clock, storage)
    whole = IndexFile(storage.open(path), SLOTS, 400)
    cut_at = int(whole.entries(low, low + 1)["offset"][0])
    whole.cut_from(cut_at)
    expected = bytes(storage.files[path].data)
    whole.close()
    torn = FaultyStorage()
    path = await left_index(ManualClock(), torn)
    data = torn.files[path].data
    # Of removed entries, and of the slots.
    entry = ENTRIES_FROM + 250 * ENTRY.size
    if damage == "slot":
        data[HEADER.size : HEADER.size + 4 * SLOTS] = b"\xff" * 4 * SLOTS
    elif damage == "previous":
        data[entry + ENTRY.size - 4 : entry + ENTRY.size] = b"\x7f" * 4
    elif damage == "hash":
        data[entry : entry + 4] = b"\xff" * 4
    index = IndexFile(torn.open(path), SLOTS, 400)

    index.cut_from(cut_at)

    assert bytes(data) == expected
    index.close()


async def test_a_slot_beyond_the_counted_entries_finds_nothing(clock, storage):
    path = await left_index(clock, storage)
    index = IndexFile(storage.open(path), SLOTS, 400)
    data = storage.files[path].data
    key_hash = 7
    # Before a power cut, the entry reached the disk, but the header that counts it didn't.
    entry = ENTRIES_FROM + index.count * ENTRY.size
    ENTRY.pack_into(data, entry, key_hash, 4_000, 0, 0)
    slot = HEADER.size + key_hash % SLOTS * 4
    data[slot : slot + 4] = index.count.to_bytes(4, "big")

    assert index.find(key_hash, 0, NEVER_DUE, 32) == []
    index.close()


async def test_an_entry_before_its_files_first_ends_the_chain(clock, storage):
    path = await left_index(clock, storage)
    index = IndexFile(storage.open(path), SLOTS, 400)
    (newest,) = index.entries(index.count - 1, index.count)
    key_hash, offset = int(newest["hash"]), int(newest["offset"])
    assert offset in index.find(key_hash, 0, NEVER_DUE, 32)
    entry = ENTRIES_FROM + (index.count - 1) * ENTRY.size

    ENTRY.pack_into(storage.files[path].data, entry, key_hash, offset, -1, index.count - 2)

    assert index.find(key_hash, 0, NEVER_DUE, 32) == []
    index.close()
