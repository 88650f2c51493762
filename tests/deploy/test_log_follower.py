from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from deploy.processes.log_follower import LINE_BYTES_MAX, LogFollower

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def follow(log: Path) -> Iterator[Callable[[], LogFollower]]:
    """Start to follow `log` now."""
    with contextlib.ExitStack() as opened:
        yield lambda: opened.enter_context(contextlib.closing(LogFollower(log)))


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_only_later_events_are_shown(log: Path, follow: Callable[[], LogFollower]) -> None:
    append(log, b"of an earlier start\n")
    follower = follow()
    append(log, b"new\n")

    assert list(follower.lines()) == ["new"]
    assert list(follower.lines()) == []


def test_a_later_file_is_shown_whole(log: Path, follow: Callable[[], LogFollower]) -> None:
    follower = follow()
    assert list(follower.lines()) == []

    append(log, b"first\n")

    assert list(follower.lines()) == ["first"]


def test_only_whole_lines_are_shown(log: Path, follow: Callable[[], LogFollower]) -> None:
    follower = follow()
    append(log, b"one\r\ntw")
    assert list(follower.lines()) == ["one"]

    append(log, b"o\nthree")

    assert list(follower.lines()) == ["two"]


def test_nothing_is_lost_in_a_rotation(log: Path, follow: Callable[[], LogFollower]) -> None:
    follower = follow()
    append(log, b"before\n")
    assert list(follower.lines()) == ["before"]

    append(log, b"last of the old\n")
    log.rename(log.with_suffix(".1"))
    append(log, b"first of the new\n")

    assert list(follower.lines()) == ["last of the old", "first of the new"]
    append(log, b"second\n")
    assert list(follower.lines()) == ["second"]


def test_an_endless_line_is_truncated(log: Path, follow: Callable[[], LogFollower]) -> None:
    follower = follow()
    append(log, b"x" * (LINE_BYTES_MAX + 1))

    assert [len(line) for line in follower.lines()] == [LINE_BYTES_MAX + 1]


def test_non_text_bytes_do_not_stop_it(log: Path, follow: Callable[[], LogFollower]) -> None:
    follower = follow()
    append(log, b"\xff\xfe\n")

    assert list(follower.lines()) == ["\N{REPLACEMENT CHARACTER}" * 2]


def test_no_line_controls_the_terminal(log: Path, follow: Callable[[], LogFollower]) -> None:
    follower = follow()
    append(log, "\tat Java\rall is well \x1b[2J \u2028 \u202e\r\n".encode())

    assert list(follower.lines()) == [r"        at Java\rall is well \x1b[2J \u2028 \u202e"]
