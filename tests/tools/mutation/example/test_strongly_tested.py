from __future__ import annotations

from tests.tools.mutation.example.strongly_tested import LIMIT, Room


def test_what_is_used_is_not_left():
    assert LIMIT == 10
    assert Room(3).left == 7
    assert Room(3).name == "room"


def test_there_is_as_much_as_is_left_and_no_more():
    assert Room(3).has(7)
    assert not Room(3).has(8)
