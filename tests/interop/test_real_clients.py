"""Runs of each kind of fault with Java, Go and raw clients, checked as one history."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.support import network
from tools.faults import (
    broker_kill,
    flush_errors,
    partition,
    power,
    promotion,
    real_clients,
    slave_kill,
)
from tools.faults.operations import (
    NEVER,
    NOWHERE,
    Consumed,
    Delivered,
    Ended,
    GaveBack,
    Outcome,
    Sent,
    Status,
    Stored,
)
from tools.faults.real_clients import GO_GROUP, GROUPS, JAVA_GROUP, TOPIC, Programs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.java_clients import JavaClients
    from tools.faults.operations import Operation
    from tools.faults.tally import Tally

SECONDS_MAX = 540.0
ACKNOWLEDGED_MIN = 100
"""Of the Java and Go clients alone before the first fault."""


@pytest.mark.fault
@pytest.mark.interop
def test_java_and_go_clients_also_lose_nothing_under_each_fault(
    tmp_path: Path, java_4: JavaClients, program: Path, rng: random.Random
) -> None:
    """In parallel, because each mostly waits for its clients' own intervals."""
    programs, seed = Programs(java_4, program), rng.randrange(1 << 32)

    def dice() -> random.Random:
        return random.Random(seed)

    runs: dict[str, tuple[str, Callable[[Path], Tally]]] = {
        "kill": (
            "",
            lambda place: broker_kill.run(place, "SYNC_FLUSH", 2, dice(), programs=programs),
        ),
        "promotion": (
            "",
            lambda place: promotion.run(place, "flushed", 1, dice(), programs=programs),
        ),
        "slave-kill": (
            "",
            lambda place: slave_kill.run(place, slave_kill.RECEIVED, 1, dice(), programs=programs),
        ),
        "partition": (
            network.missing(),
            lambda place: partition.run(place, 2, dice(), programs=programs),
        ),
        "power": (
            power.missing(),
            lambda place: power.run_broker(place, 1, dice(), programs=programs),
        ),
        "flush-error": (
            flush_errors.missing(),
            lambda place: flush_errors.run(place, 1, dice(), programs=programs),
        ),
    }
    with ThreadPoolExecutor(len(runs)) as threads:
        going = {}
        for name, (lacking, run) in runs.items():
            if not lacking:
                place = tmp_path / name
                place.mkdir()
                going[name] = threads.submit(run, place)
        found = {name: one.result(SECONDS_MAX) for name, one in going.items()}

    for name, one in found.items():
        assert one.wrong == [], f"{name} {one}"
        assert one.lost == one.phantom == one.unexplained == 0, f"{name} {one}"
        assert one.acknowledged > ACKNOWLEDGED_MIN, f"{name} {one}"
        # They return some messages, which raw clients never do.
        assert one.explained["returned"] > 0, f"{name} {one}"
    for name, (lacking, _) in runs.items():
        if lacking:
            pytest.skip(f"NOT TESTED: {name} under Java and Go clients, which needs {lacking}")


def a_send(message_id: str, *, returned: int = 5, status: Status = Status.OK) -> Sent:
    return Sent("java-1", message_id, "d", TOPIC, 0, 1, returned, status, queue_offset=0)


def there(message_id: str, topic: str = TOPIC, queue_offset: int = 0) -> Stored:
    return Stored(message_id, "d", topic, 0, queue_offset)


def given(message_id: str, at: int, queue_offset: int = 0) -> Delivered:
    return Delivered(JAVA_GROUP, "s", message_id, "d", TOPIC, 0, queue_offset, at)


def test_a_run_waits_until_both_groups_have_consumed_or_given_up_everything() -> None:
    history: list[Operation] = [a_send("a"), Consumed(GO_GROUP, "a", 7)]
    assert real_clients.unfinished(history, [], TOPIC, GROUPS) == {("", "a")}
    assert real_clients.unfinished(history, [there("a")], TOPIC, GROUPS) == {(JAVA_GROUP, "a")}
    history.append(GaveBack(JAVA_GROUP, "a", 8, status=Status.MAYBE, is_dead=True))
    assert real_clients.unfinished(history, [there("a")], TOPIC, GROUPS) == {(JAVA_GROUP, "a")}
    stored: list[Operation] = [there("a"), there("a", f"%DLQ%{JAVA_GROUP}")]
    assert real_clients.unfinished(history, stored, TOPIC, GROUPS) == set()


def test_rolled_back_messages_and_those_the_go_client_gave_up_are_not_awaited() -> None:
    history: list[Operation] = [
        a_send("a"),
        Ended("a", Outcome.ROLLBACK, 6),
        a_send("b"),
        Consumed(JAVA_GROUP, "b", 7),
        GaveBack(GO_GROUP, "b", 7, status=Status.MAYBE, is_dead=True),
    ]
    assert real_clients.unfinished(history, [there("b")], TOPIC, GROUPS) == set()


def test_an_answer_after_the_power_cut_promises_nothing() -> None:
    history: list[Operation] = [
        a_send("a", returned=5),
        a_send("b", returned=12),
        given("a", at=13),
        given("b", at=14, queue_offset=1),
        given("c", at=30, queue_offset=2),
    ]

    found = real_clients.doubted(history, [there("a")], 10, 20)

    assert found == [
        history[0],
        Sent("java-1", "b", "d", TOPIC, 0, 1, NEVER, Status.MAYBE, queue_offset=NOWHERE),
        history[2],
        history[4],
    ]
