"""The independent reader finds every error, and only errors."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from broker_core.clock import SystemClock
from broker_core.storage import FileStorage
from broker_core.store.message_store import MessageStore
from broker_core.verify.verifier import verify
from tests.support.builders import HOST, put, store_config

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 300


@pytest.fixture
async def root(tmp_path: Path) -> Path:
    config = store_config(store_path_root_dir=str(tmp_path))
    store = MessageStore(config, SystemClock(), FileStorage(), HOST)
    store.load()
    await store.start()
    for n in range(COUNT):
        put(store, queue_id=n % 3, body=b"%d" % n + b"." * 200, tags=f"T{n % 5}", keys=f"k{n}")
    await store.shutdown()
    return tmp_path


def flip(path: Path, position: int, bit: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= bit
    path.write_bytes(data)


def log_file(root: Path) -> Path:
    return root / "commitlog" / ("0" * 20)


def units_file(root: Path) -> Path:
    return root / "consumequeue" / "TopicTest" / "0" / ("0" * 20)


@pytest.fixture
async def extended(tmp_path: Path) -> Path:
    config = store_config(
        store_path_root_dir=str(tmp_path),
        enable_consume_queue_ext=True,
        mapped_file_size_consume_queue_ext=1000,
    )
    store = MessageStore(config, SystemClock(), FileStorage(), HOST, lambda topic, text: b"bits")
    store.load()
    await store.start()
    put_some(store, 0, COUNT)
    await store.shutdown()
    return tmp_path


def ext_file(root: Path, number: int) -> Path:
    return root / "consumequeue_ext" / "TopicTest" / "0" / f"{number * 1000:020d}"


async def test_extensions_are_read(extended: Path) -> None:
    report = verify(extended)

    assert report.problems == []
    assert report.consume_queues["extensions"] == COUNT


@pytest.mark.parametrize(
    ("position", "words"),
    [
        (24 * 3 + 1, "has no extension at"),
        (24 * 3 + 9, "has another tags code"),
        (24 * 3 + 17, "has another store timestamp"),
        (24 * 3 + 19, "has no extension at"),
        (24 * 40, "no extension at 960"),
    ],
)
async def test_a_flipped_bit_in_an_extension_is_found(
    extended: Path, position: int, words: str
) -> None:
    flip(ext_file(extended, 0), position)

    assert any(words in problem for problem in verify(extended).problems)


async def test_missing_extensions_are_detected(extended: Path) -> None:
    ext_file(extended, 1).unlink()

    problems = verify(extended).problems

    assert any("has no extension at" in problem for problem in problems)
    assert any("the file before this one is missing" in problem for problem in problems)


async def test_units_with_foreign_extensions_are_detected(extended: Path) -> None:
    path = units_file(extended)
    data = bytearray(path.read_bytes())
    data[12:20], data[112:120] = data[112:120], data[12:20]
    path.write_bytes(data)

    assert any("the unit before it to" in problem for problem in verify(extended).problems)


async def test_a_good_store_is_sound(root: Path) -> None:
    report = verify(root)

    assert report.problems == []
    assert report.commit_log["records"] == report.consume_queues["units"] == COUNT
    assert report.index["entries"] == COUNT
    assert json.loads(report.as_json())["sound"] is True


async def used_store(root: Path) -> MessageStore:
    """Return a store in use, with messages."""
    config = store_config(store_path_root_dir=str(root))
    store = MessageStore(config, SystemClock(), FileStorage(), HOST)
    store.load()
    await store.start()
    put_some(store, 0, COUNT)
    return store


def put_some(store: MessageStore, number_from: int, number_to: int) -> None:
    for n in range(number_from, number_to):
        put(store, queue_id=n % 3, body=b"%d" % n + b"." * 200, tags=f"T{n % 5}", keys=f"k{n}")


async def test_a_store_in_use_is_sound(tmp_path: Path) -> None:
    store = await used_store(tmp_path)

    report = verify(tmp_path)

    assert report.problems == []
    assert report.clean_exit is False
    assert report.commit_log["records"] == COUNT
    await store.shutdown()


@pytest.mark.parametrize(
    ("first", "second"),
    [(["commitlog"], ["consumequeue", "index"]), (["consumequeue", "index"], ["commitlog"])],
)
async def test_a_backup_made_under_load_is_sound(
    tmp_path: Path, first: list[str], second: list[str]
) -> None:
    root, copy = tmp_path / "store", tmp_path / "copy"
    store = await used_store(root)
    for name in first:
        shutil.copytree(root / name, copy / name)
    put_some(store, COUNT, COUNT + 100)
    for name in second:
        shutil.copytree(root / name, copy / name)
    shutil.copy(root / "abort", copy)
    await store.shutdown()

    report = verify(copy)

    assert report.problems == []
    if first == ["commitlog"]:
        assert report.commit_log["records"] == COUNT
        assert report.ahead["units"] == 100
        # Entries are buffered in memory.
        assert 0 <= report.ahead.get("entries", 0) <= 100
    else:
        assert report.commit_log["records"] == COUNT + 100
        assert report.behind == {"units": 100}


async def test_a_unit_missing_before_others_is_also_a_problem_in_use(tmp_path: Path) -> None:
    store = await used_store(tmp_path)
    path = units_file(tmp_path)
    data = bytearray(path.read_bytes())
    data[100:120] = bytes(20)
    await store.shutdown()
    path.write_bytes(data)
    (tmp_path / "abort").touch()

    report = verify(tmp_path)

    assert any("has no unit, later ones do" in problem for problem in report.problems)


async def test_an_empty_directory_is_sound(tmp_path: Path) -> None:
    assert verify(tmp_path).is_sound


@pytest.mark.parametrize("position", [1, 5, 9, 15, 27, 35, 87, 88, 300])
async def test_a_flipped_bit_in_a_record_is_found(root: Path, position: int) -> None:
    flip(log_file(root), position)

    report = verify(root)

    assert not report.is_sound
    assert all(str(root) in problem for problem in report.problems)


@pytest.mark.parametrize("position", [7, 10, 19, 20 * 50 + 3])
async def test_a_flipped_bit_in_a_unit_is_found(root: Path, position: int) -> None:
    flip(units_file(root), position)

    assert not verify(root).is_sound


async def test_a_flipped_bit_in_the_index_is_found(root: Path) -> None:
    (index,) = (root / "index").iterdir()
    flip(index, 40 + 400 + 20 * 7 + 2)

    assert not verify(root).is_sound


async def test_damage_is_named_with_its_range(root: Path) -> None:
    flip(log_file(root), 100)

    (damaged,) = verify(root).commit_log["damaged"]

    assert damaged["from"] == 0
    assert damaged["reason"] == "the checksum of its body is wrong"


async def test_missing_units_are_detected(root: Path) -> None:
    units_file(root).unlink()

    assert not verify(root).is_sound


async def test_units_without_a_record_are_detected(root: Path) -> None:
    last = max((root / "commitlog").iterdir())
    last.write_bytes(bytes(last.stat().st_size))

    assert not verify(root).is_sound


async def test_fastjsons_output_can_be_read(root: Path) -> None:
    (root / "config").mkdir()
    path = root / "config" / "consumerOffset.json"
    path.write_text('{\n\t"offsetTable":{\n\t\t"TopicTest@g":{0:7,1:9\n\t\t}\n\t}\n}')
    assert verify(root).is_sound

    path.write_text('{\n\t"offsetTable":{\n\t\t"TopicTest@g":{0:101,1:9\n\t\t}\n\t}\n}')
    problem = verify(root).problems[0]
    assert "offset of TopicTest@g in queue 0 is 101, the queue ends at 100" in problem

    path.write_text('{"offsetTable":')
    assert "cannot be read" in verify(root).problems[0]


async def test_errors_that_only_a_whole_records_checksum_shows_are_detected(tmp_path: Path) -> None:
    config = store_config(store_path_root_dir=str(tmp_path), enabled_append_prop_crc=True)
    store = MessageStore(config, SystemClock(), FileStorage(), HOST)
    store.load()
    await store.start()
    for _ in range(2):
        put(store, more={"color": "blue"})
    await store.shutdown()
    assert verify(tmp_path).problems == []
    flip(log_file(tmp_path), log_file(tmp_path).read_bytes().index(b"blue"))

    assert any("the checksum of the record" in problem for problem in verify(tmp_path).problems)
