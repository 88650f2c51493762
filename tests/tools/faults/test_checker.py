"""The checker finds each kind of failure in a history of all kinds of messages, and only that."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from tools.faults import checker, operations
from tools.faults.operations import (
    Cause,
    Delivered,
    Ended,
    GaveBack,
    Happened,
    Kind,
    Operation,
    Outcome,
    Progress,
    Sent,
    Status,
    Stored,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TOPIC, RETRY = "Orders", "%RETRY%billing"
GROUPS = ("billing", "export")
MS = 1_000_000
DELAY_NS = 1_000 * MS
COUNT = 200


@dataclass
class Run:
    """A correct broker, and the records of its clients."""

    now: int = 0
    queues: dict[tuple[str, int], list[Stored]] = field(default_factory=dict)
    history: list[Operation] = field(default_factory=list)

    def put(self, message_id: str, topic: str, queue_id: int) -> Stored:
        queue = self.queues.setdefault((topic, queue_id), [])
        stored = Stored(message_id, f"digest of {message_id}", topic, queue_id, len(queue))
        queue.append(stored)
        return stored

    def send(self, number: int, kind: Kind, status: Status = Status.OK, **more: Any) -> str:
        message_id = f"m{number}"
        queue_id, invoked = number % 2, self.tick()
        queue_offset = operations.NOWHERE
        if kind is Kind.PLAIN and status is not Status.REFUSED:
            queue_offset = self.put(message_id, TOPIC, queue_id).queue_offset
        returned = self.tick() if status is not Status.MAYBE else operations.NEVER
        shown = queue_offset if status is Status.OK else operations.NOWHERE
        client, digest = f"producer-{queue_id}", f"digest of {message_id}"
        self.history.append(
            Sent(
                *(client, message_id, digest, TOPIC, queue_id, invoked, returned, status, shown),
                kind=kind,
                **more,
            )
        )
        return message_id

    def tick(self) -> int:
        self.now += MS
        return self.now

    def give(self, group: str, stored: Stored, session: str, times: int = 0) -> None:
        place = (stored.topic, stored.queue_id, stored.queue_offset)
        at = self.tick()
        self.history.append(
            Delivered(group, session, stored.id, stored.digest, *place, at, reconsume_times=times)
        )


def a_history() -> list[Operation]:
    """All kinds: answered, unanswered, rejected, delayed, half, sent twice, returned, crashed."""
    run = Run()
    dice = random.Random(5)
    for number in range(COUNT):
        if number % 20 == 3:
            run.send(number, Kind.PLAIN, Status.REFUSED)
        elif number % 20 == 5:
            run.send(number, Kind.PLAIN, Status.MAYBE)
            run.send(number, Kind.PLAIN)
        elif number % 20 == 7:
            run.send(number, Kind.DELAYED, delay_ns=DELAY_NS)
        elif number % 20 in {9, 11}:
            message_id = run.send(number, Kind.HALF)
            outcome = Outcome.COMMIT if number % 20 == 9 else Outcome.ROLLBACK
            run.history.append(Ended(message_id, outcome, run.tick()))
            if outcome is Outcome.COMMIT:
                run.put(message_id, TOPIC, number % 2)
        else:
            run.send(number, Kind.PLAIN, shard=f"key-{dice.randrange(3)}")
    run.now += DELAY_NS
    for number in range(7, COUNT, 20):
        run.put(f"m{number}", TOPIC, number % 2)
    consume(run)
    run.history += [one for queue in run.queues.values() for one in queue]
    return run.history


def consume(run: Run) -> None:
    for group in GROUPS:
        for queue_id in (0, 1):
            queue = run.queues[TOPIC, queue_id]
            for one in queue[:60]:
                run.give(group, one, "first")
            run.history.append(Progress(group, TOPIC, queue_id, 50, run.tick()))
            run.history.append(Happened(Cause.CRASH, run.tick()))
            for one in queue[50:]:
                run.give(group, one, "second")
            run.history.append(Progress(group, TOPIC, queue_id, len(queue), run.tick()))
    for group in GROUPS:
        for queue_id in (0, 1):
            end = len(run.queues[TOPIC, queue_id])
            run.history.append(Progress(group, TOPIC, queue_id, end, run.tick()))
    for times, session in ((1, "third"), (2, "fourth")):
        run.history.append(GaveBack("billing", "m1", run.tick()))
        queue = run.queues.setdefault((RETRY, 0), [])
        again = Stored("m1", "digest of m1", RETRY, 0, len(queue))
        queue.append(again)
        run.give("billing", again, session, times)


def is_sent(message_id: str) -> Callable[[Operation], bool]:
    return lambda one: isinstance(one, Sent) and one.id == message_id


def is_stored(message_id: str) -> Callable[[Operation], bool]:
    return lambda one: isinstance(one, Stored) and one.id == message_id and one.topic == TOPIC


def is_given(message_id: str, group: str = "export") -> Callable[[Operation], bool]:
    return lambda one: isinstance(one, Delivered) and (one.id, one.group) == (message_id, group)


def without(history: list[Operation], *gone: Callable[[Operation], bool]) -> list[Operation]:
    return [one for one in history if not any(each(one) for each in gone)]


def changed(
    history: list[Operation], which: Callable[[Operation], bool], **values: Any
) -> list[Operation]:
    return [replace(one, **values) if which(one) else one for one in history]


def first(history: list[Operation], which: Callable[[Operation], bool]) -> Any:
    return next(one for one in history if which(one))


def copied(
    history: list[Operation], which: Callable[[Operation], bool], **values: Any
) -> list[Operation]:
    return [*history, replace(first(history, which), **values)]


def exchanged(history: list[Operation], one: str, other: str) -> list[Operation]:
    """Swap two stored messages."""
    places = {each: first(history, is_stored(each)).queue_offset for each in (one, other)}
    found = changed(history, is_stored(one), queue_offset=places[other])
    return [
        replace(each, queue_offset=places[one]) if is_stored(other)(each) else each
        for each in found
    ]


def of_one_key(history: list[Operation]) -> list[Operation]:
    return changed(history, lambda one: isinstance(one, Sent) and bool(one.shard), shard="one")


def late() -> dict[str, int]:
    return {"at": 1 << 60}


MUTANTS: dict[str, tuple[str, Callable[[list[Operation]], list[Operation]]]] = {
    "an acknowledged message is lost": (
        "I1",
        lambda h: without(h, is_stored("m40"), is_given("m40"), is_given("m40", "billing")),
    ),
    "a message that was never sent is stored": (
        "I2",
        lambda h: copied(h, is_stored("m40"), id="x", queue_offset=98),
    ),
    "a rejected message is stored": (
        "I2",
        lambda h: copied(h, is_stored("m40"), id="m3", queue_offset=98),
    ),
    "a message sent once is stored twice": (
        "I2",
        lambda h: copied(h, is_stored("m40"), queue_offset=98),
    ),
    "a byte of a stored message is altered": (
        "I3",
        lambda h: changed(h, is_stored("m40"), digest="another"),
    ),
    "a byte of a message is altered in transit": (
        "I3",
        lambda h: changed(h, is_given("m40"), digest="another"),
    ),
    "a delivered but unacknowledged message is lost": (
        "I4",
        lambda h: without(changed(h, is_sent("m40"), status=Status.MAYBE), is_stored("m40")),
    ),
    "a queue skips an offset": (
        "I7",
        lambda h: changed(h, is_stored("m199"), queue_offset=150),
    ),
    "an offset has two messages": (
        "I7",
        lambda h: copied(h, is_stored("m40"), id="m42"),
    ),
    "an offset has different messages for two readers": (
        "I8",
        lambda h: changed(h, is_given("m40"), id="m42", digest="digest of m42"),
    ),
    "two messages were swapped after they were read": (
        "I8",
        lambda h: exchanged(h, "m40", "m42"),
    ),
    "an acknowledgement names another offset": (
        "I9",
        lambda h: changed(h, is_sent("m40"), queue_offset=first(h, is_sent("m42")).queue_offset),
    ),
    "a later send is before an earlier one": (
        "I12",
        lambda h: changed(h, is_sent("m40"), invoked=1 << 50, returned=1 << 51),
    ),
    "a session is rewound": (
        "I13",
        lambda h: copied(h, is_given("m40"), session="second", **late()),
    ),
    "messages of a key arrive in another order": (
        "I14",
        lambda h: changed(of_one_key(h), is_given("m40"), at=1),
    ),
    "a group never receives a message": ("I15", lambda h: without(h, is_given("m40"))),
    "a message is redelivered without a reason": (
        "I15",
        lambda h: copied(h, is_given("m40"), session="later", **late()),
    ),
    "an unrequested retry arrives": (
        "I15",
        lambda h: without(h, lambda one: isinstance(one, GaveBack)),
    ),
    "a group's progress falls": (
        "I16",
        lambda h: [*h, Progress("export", TOPIC, 0, 3, 1 << 60)],
    ),
    "a retry is skipped": (
        "I17",
        lambda h: changed(
            h,
            lambda one: isinstance(one, Delivered) and one.reconsume_times == 1,
            reconsume_times=3,
        ),
    ),
    "a delayed message arrives early": ("I19", lambda h: changed(h, is_given("m7"), at=100 * MS)),
    "a half message is delivered without an outcome": (
        "I22",
        lambda h: without(h, lambda one: isinstance(one, Ended) and one.id == "m9"),
    ),
    "a half message is delivered before its commit": (
        "I22",
        lambda h: changed(h, is_given("m9"), at=1),
    ),
    "a rolled back message is stored": (
        "I22",
        lambda h: copied(h, is_stored("m40"), id="m11", digest="digest of m11", queue_offset=98),
    ),
    "a committed message is lost": (
        "I23",
        lambda h: without(h, is_stored("m9"), is_given("m9"), is_given("m9", "billing")),
    ),
    "a commit wins over the rollback before it": (
        "I24",
        lambda h: [*h, Ended("m9", Outcome.ROLLBACK, 1)],
    ),
}


def test_a_correct_history_has_no_finding_and_explains_each_second_delivery() -> None:
    report = checker.check(a_history())

    assert report.findings == []
    assert report.unexplained == 0
    assert set(report.explained) == {"crash", "returned", "sent twice"}
    assert report.explained["returned"] == 2
    assert report.lost == {}
    assert report.acknowledged > COUNT * 0.9


@pytest.mark.parametrize("what", MUTANTS)
def test_each_kind_of_error_is_detected(what: str) -> None:
    invariant, mutate = MUTANTS[what]

    report = checker.check(mutate(a_history()))

    assert invariant in {one.invariant for one in report.findings}, str(report)


@pytest.mark.parametrize(("backs", "is_explained"), [(0, False), (1, False), (2, True)])
def test_a_client_that_cannot_return_a_message_sends_it_itself_as_often(
    backs: int, is_explained: bool
) -> None:
    history = a_history()
    history += [GaveBack("export", "m193", 1 << 58, status=Status.MAYBE)] * backs
    for queue_offset in (0, 1):
        place = {"topic": "%RETRY%export", "queue_id": 0, "queue_offset": queue_offset}
        history = copied(history, is_stored("m193"), **place)
        at = (1 << 59) + queue_offset
        history = copied(history, is_given("m193"), **place, session="again", at=at)

    report = checker.check(history)

    again = [one for one in report.findings if "again" in one.text]
    assert len(again) == 2 - backs
    assert (not report.findings) is is_explained


def test_losses_are_reported_by_position_and_a_suffix_may_be_allowed() -> None:
    history = a_history()
    ends = [f"m{number}" for number in (196, 198)]
    lost = [*ends, "m0", "m40"]
    gone = without(
        history,
        *(is_stored(each) for each in lost),
        *(is_given(each, group) for each in lost for group in GROUPS),
    )

    strict, loose = checker.check(gone), checker.check(gone, may_lose_suffix=True)

    assert strict.lost == loose.lost == {"suffix": 2, "prefix": 1, "middle": 1}
    of_losses = [one for one in loose.findings if one.invariant == "I1"]
    assert len(of_losses) == 2
    assert len([one for one in strict.findings if one.invariant == "I1"]) == 4


def test_a_reset_explains_redeliveries_and_falling_progress() -> None:
    history = [
        *a_history(),
        Happened(Cause.RESET, 1 << 59, "export"),
        Progress("export", TOPIC, 0, 3, 1 << 60),
    ]
    again = copied(history, is_given("m40"), session="later", at=(1 << 60) + 1)

    report = checker.check(again)

    assert report.findings == []
    assert report.explained["reset"] == 1
    # It doesn't explain another group's.
    other = copied(again, is_given("m42", "billing"), session="later", at=(1 << 60) + 1)
    assert [one.invariant for one in checker.check(other).findings] == ["I15"]


@pytest.mark.parametrize(("asked_at", "is_wrong"), [(-1, True), (0, False), (1, False)])
def test_messages_that_a_group_has_passed_are_not_redelivered(
    asked_at: int, is_wrong: bool
) -> None:
    """A commit requested in the same nanosecond as a delivery belongs to it."""
    history = [
        *a_history(),
        Happened(Cause.REBALANCE, 1 << 59, "export"),
        Progress("export", TOPIC, 0, 1_000, (1 << 60) + asked_at),
    ]

    report = checker.check(copied(history, is_given("m40"), session="later", at=1 << 60))

    assert [one.invariant for one in report.findings] == ["I15"] * is_wrong


@pytest.mark.parametrize("has_crashed", [True, False])
def test_a_deferred_and_returned_message_may_arrive_twice_after_a_crash(
    has_crashed: bool,
) -> None:
    """The broker puts both the message and its retry, and may do so again."""
    run = Run()
    run.send(0, Kind.DELAYED, delay_ns=DELAY_NS)
    run.now += DELAY_NS
    run.give("billing", run.put("m0", TOPIC, 0), "first")
    run.history.append(GaveBack("billing", "m0", run.tick()))
    again, once_more = run.put("m0", RETRY, 0), run.put("m0", RETRY, 0)
    run.give("billing", again, "retries", 1)
    if has_crashed:
        run.history.append(Happened(Cause.CRASH, run.tick()))
    run.give("billing", once_more, "retries", 1)
    run.give("billing", run.put("m0", TOPIC, 0), "second")
    run.history += [one for queue in run.queues.values() for one in queue]

    report = checker.check(run.history)

    invariants = [one.invariant for one in report.findings]
    assert invariants == ([] if has_crashed else ["I20", "I15", "I15"])
    assert report.explained["crash"] == (2 if has_crashed else 0)


def test_a_history_is_read_back_except_for_a_line_truncated_by_a_kill(tmp_path: Path) -> None:
    history, path = a_history(), tmp_path / "history.jsonl"
    operations.write(path, history[:50])
    operations.write(path, history[50:])
    with path.open("ab") as file:
        file.write(b'{"type":"sent","cli')

    assert list(operations.read(path)) == history


def test_a_report_summarizes_its_result() -> None:
    text = str(checker.check(without(a_history(), lambda one: isinstance(one, Stored))))

    assert "lost {'suffix': " in text
    assert "I1: and " in text
    assert text.count("I1: ") == checker.SHOWN_MAX + 1


def test_a_delayed_message_is_early_if_the_new_masters_clock_is_ahead() -> None:
    sent = first(a_history(), lambda one: isinstance(one, Sent) and one.id == "m7")
    early = changed(a_history(), is_given("m7"), at=sent.invoked + 100 * MS)
    promoted = Happened(Cause.FAILOVER, sent.invoked + 1, ahead_ns=sent.delay_ns)

    def is_early(history: list[Operation]) -> bool:
        return any(one.invariant == "I19" for one in checker.check(history).findings)

    assert is_early(early)
    assert not is_early([*early, promoted])
    assert is_early([*early, replace(promoted, ahead_ns=-sent.delay_ns)])
    assert is_early([*early, replace(promoted, at=sent.invoked + sent.delay_ns)])
