"""The readable end, and the notifications when it advances."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.store.availability import Availability
from broker_core.store.consume_queue import ConsumeQueue
from broker_core.store.put_state import PutState
from broker_core.store.visibility import NO_LIMIT, Visibility
from tests.support.faulty_storage import FaultyStorage


class Stage:
    """A Visibility with two queues, in which puts are 100 bytes long."""

    def __init__(self, *, waits: bool = True) -> None:
        self.state = PutState()
        self.availability = Availability(self.state)
        self.availability.start()
        self.requests = 0
        self.arrived: list[tuple[str, int, int]] = []
        self.visibility = Visibility(
            self.availability,
            self.ask,
            waits=waits,
            on_arrival=lambda *place: self.arrived.append(place),
        )
        self.a, self.b = (
            ConsumeQueue(topic, 0, Path("/q") / topic, 2000, FaultyStorage(), lambda *_: None)
            for topic in ("A", "B")
        )
        self.end = 0

    def ask(self) -> None:
        self.requests += 1

    def put(self, queue: ConsumeQueue) -> None:
        self.end += 100
        queue.next_offset += 1
        self.visibility.leave_unflushed(queue, self.end)


@pytest.fixture
def stage():
    return Stage()


def test_unflushed_data_is_hidden_and_requested_again(stage):
    stage.put(stage.a)

    assert (stage.a.max_offset, stage.arrived, stage.requests) == (0, [], 1)


def test_everything_that_ends_at_or_before_an_offset_is_shown(stage):
    for queue in (stage.a, stage.b, stage.a):
        stage.put(queue)

    stage.visibility.show_up_to(299)
    assert (stage.a.max_offset, stage.b.max_offset) == (1, 1)
    stage.visibility.show_up_to(300)

    assert (stage.a.max_offset, stage.visibility.read_limit) == (2, 300)
    assert stage.arrived == [("A", 0, 1), ("B", 0, 1), ("A", 0, 2)]


def test_a_queue_is_notified_once_of_many_messages(stage):
    for _ in range(3):
        stage.put(stage.a)

    stage.visibility.show_up_to(300)

    assert stage.arrived == [("A", 0, 3)]


def test_without_a_wait_there_is_no_limit_and_messages_are_shown_immediately():
    stage = Stage(waits=False)
    stage.a.next_offset = 2

    stage.visibility.show(stage.a)
    stage.visibility.show_up_to(0)

    assert stage.visibility.read_limit == NO_LIMIT
    assert (stage.a.max_offset, stage.arrived) == (2, [("A", 0, 2)])


def test_a_deleted_topic_is_no_longer_shown(stage):
    stage.put(stage.a)
    stage.put(stage.b)

    stage.visibility.forget_topic("A")
    stage.visibility.show_up_to(200)

    assert (stage.a.max_offset, stage.arrived) == (0, [("B", 0, 1)])


def test_puts_are_rejected_while_too_many_are_unflushed(stage, monkeypatch):
    monkeypatch.setattr("broker_core.store.visibility.UNFLUSHED_MAX", 3)
    for _ in range(2):
        stage.put(stage.a)
    assert stage.state.is_writable
    stage.put(stage.a)
    assert not stage.state.is_writable

    stage.visibility.show_up_to(100)

    assert stage.state.is_writable


def test_after_a_failure_reads_end_at_the_given_offset(stage):
    stage.put(stage.a)

    stage.visibility.stop_at(50)

    assert (stage.visibility.read_limit, stage.a.max_offset) == (50, 0)


def test_everything_is_shown_and_reported_once_puts_no_longer_wait(stage, monkeypatch):
    monkeypatch.setattr("broker_core.store.visibility.UNFLUSHED_MAX", 2)
    stage.visibility.show_up_to(0)
    stage.put(stage.a)
    stage.put(stage.b)
    assert not stage.state.is_writable

    stage.visibility.show_all()

    assert (stage.a.max_offset, stage.b.max_offset) == (1, 1)
    assert stage.arrived == [("A", 0, 1), ("B", 0, 1)]
    assert stage.visibility.read_limit == NO_LIMIT
    assert stage.state.is_writable
    stage.visibility.show_up_to(200)
    assert len(stage.arrived) == 2
