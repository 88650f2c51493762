from __future__ import annotations

from tests.tools.mutation.example.weakly_tested import Room


def test_there_is_little():
    assert Room(3).has(1)
