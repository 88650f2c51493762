from __future__ import annotations

from tests.tools.mutation.example.strongly_tested import LIMIT, Room


def test_used_room_is_not_left():
    assert LIMIT == 10
    assert Room(3).left == 7
    assert Room(3).name == "room"


def test_as_much_is_allowed_as_is_left():
    assert Room(3).has(7)
    assert not Room(3).has(8)
