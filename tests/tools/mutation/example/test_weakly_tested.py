from __future__ import annotations

from tests.tools.mutation.example.weakly_tested import Room


def test_a_small_number_fits():
    assert Room(3).has(1)
