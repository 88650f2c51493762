from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.trace import deliveries as module
from broker_core.trace.deliveries import Delivered, Deliveries

if TYPE_CHECKING:
    import pytest

QUEUE = ("g", "T", 0)


def delivered(name: str = "") -> Delivered:
    return Delivered({"UNIQ_KEY": name}, 0, "0A", 4, 1.0, None)


def noted(*offsets: int) -> Deliveries:
    deliveries = Deliveries()
    for offset in offsets:
        deliveries.note(QUEUE, offset, delivered())
    return deliveries


def test_an_acknowledgement_takes_its_messages_once_and_in_order() -> None:
    deliveries = noted(5, 3, 4, 7)

    assert [offset for offset, _ in deliveries.take(QUEUE, 3, 6)] == [3, 4, 5]
    assert [offset for offset, _ in deliveries.take(QUEUE, 0, 8)] == [7]
    assert deliveries.take(QUEUE, 0, 8) == []


def test_groups_topics_and_queues_have_their_own_deliveries() -> None:
    deliveries = noted(1)

    for other in (("h", "T", 0), ("g", "U", 0), ("g", "T", 1)):
        assert deliveries.take(other, 0, 9) == []
    assert len(deliveries.take(QUEUE, 0, 9)) == 1


def test_the_last_time_of_a_message_delivered_twice_counts() -> None:
    deliveries = Deliveries()
    deliveries.note(QUEUE, 1, delivered("once"))
    deliveries.note(QUEUE, 1, delivered("again"))

    [(_, result)] = deliveries.take(QUEUE, 0, 9)

    assert result.properties["UNIQ_KEY"] == "again"


def test_too_many_deliveries_push_out_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DELIVERIES_MAX", 3)
    deliveries = noted(1, 2, 3, 4)

    assert [offset for offset, _ in deliveries.take(QUEUE, 0, 9)] == [2, 3, 4]


def test_accepted_events_are_dropped_once_nothing_before_them_waits() -> None:
    deliveries = noted(1, 2, 3)

    deliveries.take(QUEUE, 2, 3)
    assert len(deliveries.order) == 3
    deliveries.take(QUEUE, 0, 2)
    assert [number for _, number in deliveries.order] == [3]


def test_queues_without_deliveries_are_dropped_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "QUEUES_MAX", 3)
    deliveries = noted(1)
    before = deliveries.queues
    for number in (1, 2):
        deliveries.note(("g", "T", number), 1, delivered())
        deliveries.take(("g", "T", number), 0, 9)

    deliveries.note(("g", "T", 3), 1, delivered())

    assert set(deliveries.queues) == {QUEUE, ("g", "T", 3)}
    # Holders of a queue's deliveries must look them up again.
    assert deliveries.queues is not before
