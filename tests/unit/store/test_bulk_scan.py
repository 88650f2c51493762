"""Recovery in bulk has the same results as recovery record by record."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING
from zlib import crc32

import pytest

from broker_core.message.ids import host_bytes
from broker_core.store import bulk_scan, recovery
from broker_core.store.ext_replay import ExtReplay
from tests.support.builders import HOST, LOG_FILE_SIZE, a_store, put, store_config
from tests.support.clock import ManualClock
from tests.support.faulty_storage import FaultyStorage

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.config.store import StoreConfig

V6_HOST = host_bytes("::1", 10911)
TOPICS = ("one", "two", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer")
CONFIGS = {
    "": store_config(),
    " with extensions": store_config(
        enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=300
    ),
}


def bit_map_of(topic: str, properties: str) -> bytes:
    """Return a bitmap for some messages, of all possible sizes."""
    return bytes([crc32(properties.encode()) % 256]) * (len(properties) % 5)


async def killed_store(dice: random.Random, config: StoreConfig) -> FaultyStorage:
    """Return a killed store with messages of all kinds."""
    storage, clock = FaultyStorage(), ManualClock()
    store = a_store(clock, storage, config, bit_map_of)
    store.load()
    await store.start()
    for n in range(400):
        clock.advance_ms(dice.randrange(400))
        put(
            store,
            dice.choice(TOPICS),
            n % 3,
            dice.randbytes(dice.choice([0, 1, 90, 300])),
            tags=dice.choice([None, "A", "B" * 300, "中文", "C"]),
            keys=dice.choice([None, f"k{n}", f"k{n} shared  x{n % 7}", "键", "polygenelubricants"]),
            uniq_key=dice.choice([None, f"{n:032X}"]),
            sys_flag=dice.choice([0, 0, 0, 1, 4, 8]),
            born_host=dice.choice([HOST, HOST, V6_HOST]),
            more=dice.choice(
                [
                    {},
                    {"DELAY": "3"},
                    {"xTAGS": "n", "MY_KEYS": "q"},
                    {"TIMER_OUT_MS": str(clock.now_ms() + n)},
                    {"TIMER_OUT_MS": dice.choice(["0", "7", "x", "-1795252759675", "9" * 16])},
                ]
            ),
        )
    left = storage.crash()
    await store.shutdown()
    return left


def untouched(storage: FaultyStorage, dice: random.Random) -> None:
    """As after the kill."""


def without_queues(storage: FaultyStorage, dice: random.Random) -> None:
    for path in [path for path in storage.files if "consumequeue" in path.parts]:
        del storage.files[path]


def without_extensions(storage: FaultyStorage, dice: random.Random) -> None:
    for path in [path for path in storage.files if "consumequeue_ext" in path.parts]:
        del storage.files[path]


def without_index(storage: FaultyStorage, dice: random.Random) -> None:
    for path in [path for path in storage.files if "index" in path.parts]:
        del storage.files[path]


def zeroed_sectors(kind: str) -> Callable[[FaultyStorage, random.Random], None]:
    def zero(storage: FaultyStorage, dice: random.Random) -> None:
        paths = sorted(path for path in storage.files if kind in path.parts)
        for _ in range(3):
            data = storage.files[dice.choice(paths)].data
            at = dice.randrange(0, len(data), 512)
            data[at : at + 512] = bytes(len(data[at : at + 512]))

    return zero


def flipped_bits(kind: str) -> Callable[[FaultyStorage, random.Random], None]:
    def flip(storage: FaultyStorage, dice: random.Random) -> None:
        paths = sorted(path for path in storage.files if kind in path.parts)
        for _ in range(3):
            data = storage.files[dice.choice(paths)].data
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)

    return flip


def torn_log(storage: FaultyStorage, dice: random.Random) -> None:
    last = max(path for path in storage.files if "commitlog" in path.parts)
    data = storage.files[last].data
    end = len(data.rstrip(b"\0"))
    cut = max(end - dice.randrange(1, 400), 0)
    data[cut:] = bytes(LOG_FILE_SIZE - cut)


KINDS = ("commitlog", "consumequeue", "index", "consumequeue_ext")
HURT = {
    "untouched": untouched,
    "without queues": without_queues,
    "without index": without_index,
    "torn log": torn_log,
    **{f"zeros in {kind}": zeroed_sectors(kind) for kind in KINDS},
    **{f"flips in {kind}": flipped_bits(kind) for kind in KINDS},
    "without consumequeue_ext": without_extensions,
}


def recovered(storage: FaultyStorage, config: StoreConfig) -> tuple[object, dict[str, bytes]]:
    """Return recovery's report and files; index files by number, because their names are times."""
    store = a_store(ManualClock(), storage, config, bit_map_of)
    report = store.load()._replace(duration_ms=0)
    store.close()
    contents = {
        str(path): bytes(inode.data)
        for path, inode in storage.files.items()
        if path.parent.name != "index"
    }
    index = sorted(path for path in storage.files if path.parent.name == "index")
    contents |= {f"index {n}": bytes(storage.files[path].data) for n, path in enumerate(index)}
    return report, contents


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        (what, kind)
        for kind in CONFIGS
        for what in HURT
        if kind or not what.endswith("consumequeue_ext")
    ],
)
@pytest.mark.parametrize(("seed", "chunk"), [(1, 4096), (2, 1 << 20)])
async def test_bulk_and_single_records_give_the_same_result(
    monkeypatch: pytest.MonkeyPatch, what: str, kind: str, seed: int, chunk: int
) -> None:
    dice, config = random.Random(seed), CONFIGS[kind]
    storage = await killed_store(dice, config)
    HURT[what](storage, dice)
    single = storage.crash()
    monkeypatch.setattr(recovery, "BULK_RECORDS_MIN", 1 << 30)
    monkeypatch.setattr(bulk_scan, "CHUNK_BYTES", 64)
    expected = recovered(single, config)
    monkeypatch.undo()
    monkeypatch.setattr(bulk_scan, "CHUNK_BYTES", chunk)
    monkeypatch.setattr(recovery, "SINGLE_RECORDS", 3)
    monkeypatch.setattr(recovery, "BULK_RECORDS_MIN", 1)

    found = recovered(storage, config)

    assert found[0] == expected[0]
    assert found[1].keys() == expected[1].keys()
    assert [name for name in found[1] if found[1][name] != expected[1][name]] == []


async def test_a_scan_from_a_point_with_missing_units_reads_on_from_there(store):
    for n in range(20):
        put(store, queue_id=n % 3)
    log, files = store.files.log, store.files
    begin = files.queues.find("TopicTest", 2).unit(0)[0]
    scan = bulk_scan.BulkScan(
        files.queues, None, ExtReplay(), files.deleted, {}, lambda queue: None, check_crc=True
    )

    before = scan.advance(log.file_at(0), 0, begin)
    behind = scan.advance(log.file_at(begin), begin, begin)

    assert before is not None
    assert behind is not None
    assert (before.records, before.size) == (2, begin)
    assert (behind.records, behind.size) == (18, log.max_offset - begin)
    scan.close()
