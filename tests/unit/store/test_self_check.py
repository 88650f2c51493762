from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from broker_core.formats.paths import StorePaths, offset_file_name
from broker_core.storage import FileStorage
from broker_core.store.self_check import FIRST_S, PERIOD_S, Gap, SelfCheck
from tests.support.clock import ManualClock
from tests.support.waiting import until_async

if TYPE_CHECKING:
    from pathlib import Path

LOG_FILE, QUEUE_FILE = 1000, 200


@pytest.fixture
def self_check(tmp_path: Path) -> SelfCheck:
    paths = StorePaths.of(str(tmp_path), "")
    return SelfCheck(paths, LOG_FILE, QUEUE_FILE, ManualClock(), FileStorage())


def make(directory: Path, *offsets: int) -> Path:
    directory.mkdir(parents=True)
    for offset in offsets:
        (directory / offset_file_name(offset)).touch()
    return directory


def test_consecutive_files_are_sound(self_check: SelfCheck, tmp_path: Path) -> None:
    make(tmp_path / "commitlog", 3000, 4000, 5000)
    make(tmp_path / "consumequeue/T/0", 400, 600)
    make(tmp_path / "consumequeue/T/1")
    (tmp_path / "commitlog" / "note.txt").touch()

    assert list(self_check.gaps()) == []


def test_an_empty_store_is_sound(self_check: SelfCheck) -> None:
    assert list(self_check.gaps()) == []


def test_missing_files_are_detected(self_check: SelfCheck, tmp_path: Path) -> None:
    log = make(tmp_path / "commitlog", 0, 1000, 4000)
    queue = make(tmp_path / "consumequeue/T/3", 0, 400)

    assert set(self_check.gaps()) == {Gap(log, 2000, 4000), Gap(queue, 200, 400)}


async def test_a_gap_is_reported_once(
    self_check: SelfCheck, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    log = make(tmp_path / "commitlog", 0, 2000)

    await self_check.check()
    await self_check.check()

    (line,) = [record.getMessage() for record in caplog.records]
    assert line == (
        f"store files missing directory={log} from=00000000000000001000 to=00000000000000002000"
    )


async def test_it_checks_after_a_while_and_then_each_period(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    clock = ManualClock()
    paths = StorePaths.of(str(tmp_path), "")
    self_check = SelfCheck(paths, LOG_FILE, QUEUE_FILE, clock, FileStorage())
    log = make(tmp_path / "commitlog", 0, 2000)
    self_check.start()
    await until_async(lambda: clock.waiting == 1, "the next look")
    clock.advance_ms(int(FIRST_S * 1000) - 1)
    assert caplog.messages == []

    clock.advance_ms(1)
    await until_async(lambda: clock.waiting == 1, "the next look")
    assert len(caplog.messages) == 1
    (log / offset_file_name(4000)).touch()
    clock.advance_ms(int(PERIOD_S * 1000))
    await until_async(lambda: clock.waiting == 1, "the next look")

    assert len(caplog.messages) == 2
    await self_check.shutdown()
