"""A soak of half a minute finds growth, and reports level quantities with their process's life."""

from __future__ import annotations

import csv
import json
import os
import random
import socket
import threading
import xml.etree.ElementTree as ElementTree
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tools.soak import pages, soak
from tools.soak.levels import (
    DESCRIPTORS,
    MEMORY,
    MIB,
    STORE_FILES,
    Lives,
    Point,
    disk_verdict,
    process_usage,
    verdict_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.appliance import Appliance

MINUTES, RATE, SEED = 0.5, 30.0, 18


class Leak(threading.Thread):
    """Opens a connection to the broker now and then, and closes none."""

    def __init__(self, appliance: Appliance) -> None:
        super().__init__(daemon=True)
        self._port = appliance.port
        self._over = threading.Event()
        self._open: list[socket.socket] = []

    def run(self) -> None:
        while not self._over.wait(0.1):
            # The broker is gone before the test is over.
            with suppress(OSError):
                self._open.append(socket.create_connection(("127.0.0.1", self._port)))

    def end(self) -> None:
        self._over.set()
        self.join()
        for each in self._open:
            each.close()


@pytest.mark.fault
def test_a_soak_loses_nothing_and_detects_a_leaked_descriptor(tmp_path: Path) -> None:
    leaks: list[Leak] = []

    def leak(appliance: Appliance) -> None:
        leaks.append(Leak(appliance))
        leaks[0].start()

    found = soak.run(
        tmp_path,
        MINUTES,
        random.Random(SEED),
        rate=RATE,
        restart_minutes=MINUTES,
        victims=("web",),
        beside=leak,
        say=print,
    )
    leaks[0].end()
    pages.write(tmp_path / "out", found)

    assert found.findings == []
    assert found.wrong == []
    assert sum(one.acknowledged for one in found.checked) > 0
    assert found.total("lost").total() == 0
    assert [text.split()[0] for text in found.restarts] == ["web"]
    assert found.members > 1
    assert len(+found.frames) == 2
    grown = {one.name for one in found.verdicts if one.what == DESCRIPTORS and not one.is_level}
    # Redis, which the web process connects to, may grow too.
    assert "broker" in grown
    assert not found.is_right
    assert_written(tmp_path / "out", found)


def assert_written(out: Path, found: soak.Figures) -> None:
    with (out / "soak.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["acknowledged"]) for row in rows] == [one.acknowledged for one in found.minutes]
    assert not json.loads((out / "soak.json").read_text())["level"]
    picture = ElementTree.parse(out / "soak.svg")
    titles = [each.text for each in picture.iter() if each.get("font-weight") == "bold"]
    assert titles[:3] == ["sends, ms", "own memory, MiB", "descriptors"]


def series(*values: float, step: float = 60.0) -> list[Point]:
    return [Point(number * step, value) for number, value in enumerate(values)]


def test_a_processs_warm_up_is_not_growth() -> None:
    warm = series(*range(10, 100, 10), *[100.0] * 50)

    (found,) = verdict_of("web", DESCRIPTORS, warm)

    assert (found.second, found.last, found.is_level) == (100.0, 100.0, True)


@pytest.mark.parametrize(("part", "is_level"), [(0.04, True), (0.07, False)])
def test_a_rise_of_at_most_five_percent_after_the_warm_up_is_level(
    part: float, is_level: bool
) -> None:
    start = 200.0 * MIB
    # From the middle of the second fifth to that of the last one are three fifths.
    rise = [start * (1 + part * number / 60) for number in range(101)]

    (found,) = verdict_of("broker", MEMORY, series(*rise))

    assert found.is_level is is_level


def test_an_increase_below_its_kinds_tolerance_is_ignored() -> None:
    (found,) = verdict_of("beat", MEMORY, series(*[20.0 * MIB] * 30, *[23.0 * MIB] * 30))

    assert found.is_level


def test_one_descriptor_per_store_file_is_not_growth(tmp_path: Path) -> None:
    store, outside = tmp_path / "store", tmp_path / "outside"
    store.mkdir()

    def seen() -> tuple[float, float]:
        found = process_usage(store, os.getpid())
        return found[DESCRIPTORS] - before[DESCRIPTORS], found[STORE_FILES]

    before = process_usage(store, os.getpid())
    with (store / "0").open("w"), (store / "1").open("w"):
        assert seen() == (0, 2)
        with outside.open("w"), (store / "1").open():
            assert seen() == (2, 2)
        (store / "1").unlink()
        assert seen() == (1, 1)


def test_a_restart_begins_a_new_life_and_the_longest_one_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    has = {1: 500.0, 2: 100.0}
    monkeypatch.setattr("tools.soak.levels.process_usage", lambda _, pid: {DESCRIPTORS: has[pid]})
    lives = Lives(tmp_path)
    for at in range(100):
        pid = 1 if at < 30 else 2
        lives.note(at, {"web": [pid]}, None)
        has[pid] += 10 if pid == 1 else 0

    (found,) = lives.verdicts()

    assert (found.second, found.last, found.seconds, found.is_level) == (100.0, 100.0, 69.0, True)


def test_the_disk_is_level_while_the_size_per_message_is_constant() -> None:
    sent = series(*(1_000.0 * number for number in range(100)))
    even = series(*(6e6 * number for number in range(100)))
    steeper = series(*(6e6 * number * (1 + number / 100) for number in range(100)))

    assert [one.is_level for one in disk_verdict(even, sent)] == [True]
    assert [one.is_level for one in disk_verdict(steeper, sent)] == [False]
