from __future__ import annotations

from tests.tools.mutation.example.weakly_tested import Room


def test_few_are_kept():
    assert Room(3).has(1)
