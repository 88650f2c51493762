"""The checker of histories finds each kind of wrong: otherwise no run with it means anything."""

from __future__ import annotations

import pytest

from tests.faults.histories import History, Read
from tests.support.raw_remoting import Record


def a_history() -> tuple[History, dict[int, list[Record]]]:
    history = History()
    for body, code in ((b"a", 0), (b"b", 12), (b"c", 0)):
        history.note_sent(body)
        history.note_answer(body, code)
    history.note_sent(b"c")
    history.read.append(Read(0, 0, b"a"))
    stored = {
        0: [Record(0, 0, b"a"), Record(0, 1, b"c"), Record(0, 2, b"c")],
        1: [Record(1, 0, b"b")],
    }
    return history, stored


def test_what_at_least_once_allows_is_right() -> None:
    history, stored = a_history()

    assert history.wrong(stored) == []
    # Never acknowledged: it may be gone.
    assert history.wrong({0: stored[0], 1: []}) == []


@pytest.mark.parametrize(
    ("queue", "found"),
    [
        ([Record(0, 0, b"a")], "acknowledged and lost: b'c'"),
        ([Record(0, 0, b"a"), Record(0, 2, b"c")], "queue 0 has gaps"),
        ([Record(0, n, b) for n, b in enumerate([b"a", b"c", b"c", b"c"])], "stored 3 times"),
        ([Record(0, n, b) for n, b in enumerate([b"a", b"c", b"x"])], "never sent: b'x'"),
        ([Record(0, n, b) for n, b in enumerate([b"c", b"a"])], "read at 0/0: b'a'"),
    ],
)
def test_each_kind_of_wrong_is_found(queue: list[Record], found: str) -> None:
    history, stored = a_history()

    wrong = history.wrong({0: queue, 1: stored[1]})

    assert any(found in line for line in wrong), wrong
