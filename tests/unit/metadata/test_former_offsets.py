from __future__ import annotations

from broker_core.metadata.former_offsets import DISCARD_S, QUEUES_MAX, FormerOffsets
from tests.support.clock import ManualClock


def test_the_first_commits_in_a_deleted_topics_queue_are_former_for_a_minute() -> None:
    clock = ManualClock()
    former = FormerOffsets(clock)
    former.remember("g", "T", {0, 1})
    clock.advance_ms(86_400_000)

    assert former.is_former("g", "T", 0)
    clock.advance_ms(int(DISCARD_S * 1000))
    assert not former.is_former("g", "T", 0)
    assert former.is_former("g", "T", 1)
    assert not former.is_former("g", "T", 2)
    assert not former.is_former("h", "T", 0)


def test_a_queue_is_removed_alone_and_a_group_with_all_its_queues() -> None:
    former = FormerOffsets(ManualClock())
    former.remember("g", "T", {0, 1})
    former.remember("g", "U", {0})
    former.remember("h", "T", {0})

    former.forget("g", "T", 0)
    assert (former.is_former("g", "T", 0), former.is_former("g", "T", 1)) == (False, True)

    former.forget_group("g")
    assert former.count == 1
    assert former.is_former("h", "T", 0)


def test_the_oldest_queues_are_forgotten_beyond_the_limit() -> None:
    former = FormerOffsets(ManualClock())
    former.remember("old", "T", range(10))
    former.remember("g", "T", range(QUEUES_MAX - 10))
    assert former.count == QUEUES_MAX

    former.remember("new", "T", {0})

    assert former.count == QUEUES_MAX - 9
    assert not former.is_former("old", "T", 0)
    assert former.is_former("new", "T", 0)
