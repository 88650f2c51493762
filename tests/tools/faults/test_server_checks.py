"""The checker finds servers' failures in a history with two masters, and only those."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from tools.faults import checker
from tools.faults.operations import (
    NEVER,
    Bounds,
    Cause,
    Delivered,
    DiskFailed,
    Faulty,
    Happened,
    Kind,
    Log,
    Operation,
    Progress,
    Sent,
    Started,
    Status,
    Stored,
)

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC, GROUP = "Orders", "billing"
SECOND = 1_000_000_000
FAILED_AT, PROMOTED_AT = 31 * SECOND + SECOND // 2, 61 * SECOND
COUNT = 90


def stored_ms(second: int) -> int:
    """Return the store time; the second master's clock, a minute behind, doesn't count."""
    return (1_000 + min(second, PROMOTED_AT // SECOND - 1)) * 1_000


def server_at(second: int) -> str:
    return "a" if second * SECOND < PROMOTED_AT else "b"


def a_history() -> list[Operation]:
    """One message a second; the disk of the first master fails, later its slave is promoted."""
    history: list[Operation] = [
        Started("a", 0),
        Faulty("failing disk", 30 * SECOND, 33 * SECOND, 34 * SECOND),
        DiskFailed("a", 30 * SECOND, FAILED_AT),
        Happened(Cause.CRASH, 32 * SECOND),
        Started("a", 33 * SECOND),
        Faulty("failover", 60 * SECOND, 62 * SECOND, 63 * SECOND),
        Happened(Cause.CRASH, 60 * SECOND),
        Happened(Cause.FAILOVER, PROMOTED_AT),
        Log("a", 9_000, "digest"),
        Log("b", 9_000, "digest"),
    ]
    stored = 0
    for second in range(COUNT):
        at, message_id, server = second * SECOND, f"m{second}", server_at(second)
        status = Status.REFUSED if second in (32, 62) else Status.OK
        offset = stored if status is Status.OK else -1
        kind = Kind.DELAYED if second == 10 else Kind.PLAIN
        history.append(
            Sent(
                *("producer", message_id, "digest", TOPIC, 0, at + 1, at + 2, status, offset),
                kind=kind,
                server=server,
            )
        )
        if status is Status.OK:
            history.append(Stored(message_id, "digest", TOPIC, 0, stored, stored_ms(second)))
            history.append(Delivered(GROUP, "one", message_id, "digest", TOPIC, 0, stored, at + 3))
            stored += 1
        # Data that a failing disk hasn't flushed isn't shown.
        shown = stored - 1 if second == 31 else stored
        history.append(Bounds(server, TOPIC, 0, second // 50, shown, at + 5))
        history.append(Progress(GROUP, TOPIC, 0, stored, at + 6))
    return history


def changed(
    history: list[Operation], which: Callable[[Operation], bool], **values: Any
) -> list[Operation]:
    return [replace(one, **values) if which(one) else one for one in history]


def without(history: list[Operation], which: Callable[[Operation], bool]) -> list[Operation]:
    return [one for one in history if not which(one)]


def is_sent(message_id: str) -> Callable[[Operation], bool]:
    return lambda one: isinstance(one, Sent) and one.id == message_id


def is_stored(message_id: str) -> Callable[[Operation], bool]:
    return lambda one: isinstance(one, Stored) and one.id == message_id


def is_bounds_at(second: int) -> Callable[[Operation], bool]:
    return lambda one: isinstance(one, Bounds) and one.invoked // SECOND == second


MUTANTS: dict[str, tuple[str, Callable[[list[Operation]], list[Operation]]]] = {
    "a message is acknowledged after a failed flush": (
        "I5",
        lambda h: changed(h, is_sent("m32"), status=Status.OK, queue_offset=32),
    ),
    "a queue ends before an acknowledged message": (
        "I11",
        lambda h: changed(h, is_bounds_at(40), high=30),
    ),
    "a queue starts earlier than before": ("I11", lambda h: changed(h, is_bounds_at(80), low=0)),
    "a delayed message is stored twice without a crash": (
        "I20",
        lambda h: [
            *without(h, lambda one: isinstance(one, Happened)),
            Stored("m10", "digest", TOPIC, 0, 88),
        ],
    ),
    "a message is older than its predecessor": (
        "I10",
        lambda h: changed(h, is_stored("m50"), stored_ms=stored_ms(20)),
    ),
    "a byte of the slave's log is altered": (
        "I25",
        lambda h: changed(h, lambda one: isinstance(one, Log) and one.server == "b", digest="x"),
    ),
    "the slave's log is shorter": (
        "I25",
        lambda h: changed(h, lambda one: isinstance(one, Log) and one.server == "b", end=8_000),
    ),
    "a slave acknowledges besides its master": (
        "I29",
        lambda h: changed(h, is_sent("m20"), server="b"),
    ),
    "the old master continues after the promotion": (
        "I29",
        lambda h: changed(h, is_sent("m70"), server="a"),
    ),
    "nothing is acknowledged after a fault": (
        "I31",
        lambda h: changed(
            h, lambda one: isinstance(one, Faulty) and one.what == "failover", recovered=NEVER
        ),
    ),
    "a send is rejected without a fault": (
        "I32",
        lambda h: changed(h, is_sent("m50"), status=Status.REFUSED),
    ),
    "progress is further back after a crash than it was a minute before": (
        "I16",
        lambda h: [*h, Happened(Cause.CRASH, 95 * SECOND), fallen_to(40)],
    ),
}


def fallen_to(offset: int) -> Progress:
    return Progress(GROUP, TOPIC, 0, offset, 96 * SECOND)


def test_healthy_servers_give_no_finding() -> None:
    report = checker.check(a_history())

    assert report.findings == []
    assert report.acknowledged == COUNT - 2


@pytest.mark.parametrize("what", MUTANTS)
def test_each_kind_of_error_is_detected(what: str) -> None:
    invariant, mutate = MUTANTS[what]

    report = checker.check(mutate(a_history()))

    assert invariant in {one.invariant for one in report.findings}, str(report)


def test_a_crash_may_lose_seconds_of_progress_and_repeat_a_delayed_message() -> None:
    history = [
        *a_history(),
        Happened(Cause.CRASH, 91 * SECOND),
        fallen_to(86),
        Stored("m10", "digest", TOPIC, 0, COUNT - 2),
        Delivered(GROUP, "one", "m10", "digest", TOPIC, 0, COUNT - 2, 97 * SECOND),
    ]

    report = checker.check(history)

    assert report.findings == []
    assert report.explained == {"crash": 1}


def test_a_client_may_be_rejected_until_it_discovers_the_new_master() -> None:
    def refused(number: int, learns: int) -> set[str]:
        history = changed(
            a_history(),
            is_sent(f"m{number}"),
            status=Status.REFUSED,
            learns_ns=learns * SECOND,
        )
        return {one.invariant for one in checker.check(history).findings}

    assert "I32" in refused(64, 0)
    assert "I32" not in refused(64, 2)
    assert "I32" in refused(70, 2)
