"""The independent reader finds what is wrong, and nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from broker_core.clock import SystemClock
from broker_core.storage import FileStorage
from broker_core.store.message_store import MessageStore
from broker_core.verify import verify
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


async def test_a_good_store_is_sound(root: Path) -> None:
    report = verify(root)

    assert report.problems == []
    assert report.commit_log["records"] == report.consume_queues["units"] == COUNT
    assert report.index["entries"] == COUNT
    assert json.loads(report.as_json())["sound"] is True


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


async def test_missing_units_are_found(root: Path) -> None:
    units_file(root).unlink()

    assert not verify(root).is_sound


async def test_units_of_no_record_are_found(root: Path) -> None:
    last = max((root / "commitlog").iterdir())
    last.write_bytes(bytes(last.stat().st_size))

    assert not verify(root).is_sound


async def test_what_fastjson_writes_is_read(root: Path) -> None:
    (root / "config").mkdir()
    path = root / "config" / "consumerOffset.json"
    path.write_text('{\n\t"offsetTable":{\n\t\t"TopicTest@g":{0:7,1:9\n\t\t}\n\t}\n}')
    assert verify(root).is_sound

    path.write_text('{\n\t"offsetTable":{\n\t\t"TopicTest@g":{0:101,1:9\n\t\t}\n\t}\n}')
    assert "is at 101 of queue 0, which ends at 100" in verify(root).problems[0]

    path.write_text('{"offsetTable":')
    assert "cannot be read" in verify(root).problems[0]
