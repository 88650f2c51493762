"""Check a history of a fault run against the invariants of a broker.

Each finding names its invariant (`../shared/reference/reliability.md`, section 2) and the message
and locations. A second delivery without a cause that explains it is a finding. The checker reads
the history once and takes time in proportion to its length.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tools.faults import group_checks, server_checks
from tools.faults.history_index import Finding, History, Place, at_of
from tools.faults.operations import (
    NEVER,
    NOWHERE,
    Cause,
    Delivered,
    Kind,
    Outcome,
    Sent,
    Status,
    Stored,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from tools.faults.operations import Operation

RETRIED, SENT_TWICE, REPLAYED = "returned", "sent twice", "replayed"
"""Explanations besides the causes of `operations`."""
RETRY_TOPICS = "%RETRY%"
SHOWN_MAX = 10


@dataclass(slots=True)
class Report:
    """The result of a check.

    Attributes:
        explained: second deliveries by explanation.
        lost: acknowledged IDs that are gone, by their position among their client's: prefix,
            middle, suffix.
    """

    findings: list[Finding] = field(default_factory=list)
    explained: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    delivered: int = 0

    @property
    def phantom(self) -> int:
        return sum(one.invariant == "I2" for one in self.findings)

    @property
    def unexplained(self) -> int:
        return sum(one.invariant == "I15" and "again" in one.text for one in self.findings)

    def __str__(self) -> str:
        kinds = Counter(one.invariant for one in self.findings)
        lines = [
            f"{self.acknowledged} acknowledged, {self.delivered} delivered, "
            f"lost {dict(self.lost)}, explained redeliveries {dict(self.explained)}"
        ]
        for invariant, count in sorted(kinds.items()):
            these = [str(one) for one in self.findings if one.invariant == invariant]
            lines += these[:SHOWN_MAX]
            if count > SHOWN_MAX:
                lines.append(f"{invariant}: and {count - SHOWN_MAX} more")
        return "\n".join(lines)


_kept: ContextVar[Path | None] = ContextVar("_kept", default=None)


@contextmanager
def keeping(file: Path | None) -> Iterator[None]:
    """Save the first history with a failure to a new file, while the block runs."""
    token = _kept.set(file)
    try:
        yield
    finally:
        _kept.reset(token)


def check(operations: Iterable[Operation], *, may_lose_suffix: bool = False) -> Report:
    """Check a history; `may_lose_suffix`: power failed, and acknowledged means in memory."""
    operations = list(operations)
    report = _report_on(History(operations), may_lose_suffix=may_lose_suffix)
    kept = _kept.get()
    if kept is not None and report.findings and not kept.exists():
        write(kept, operations)
    return report


def _report_on(history: History, *, may_lose_suffix: bool) -> Report:
    report = Report()
    report.acknowledged = sum(
        one.status is Status.OK for sends in history.sent.values() for one in sends
    )
    report.delivered = len(history.delivered)
    for each in CHECKS:
        report.findings += each(history)
    report.findings += _lost(history, report.lost, may_lose_suffix=may_lose_suffix)
    report.findings += _redeliveries(history, report.explained)
    return report


def _lost(history: History, lost: Counter[str], *, may_lose_suffix: bool) -> Iterator[Finding]:
    """I1: acknowledged messages are stored. Losses are grouped by position among the client's."""
    for client, sends in history.by_client.items():
        promised = [one for one in sends if one.status is Status.OK]
        promised = [one for one in promised if history.is_promised(one.id)]
        gone = [one.id not in history.places for one in promised]
        first_there = gone.index(False) if False in gone else len(gone)
        last_there = len(gone) - 1 - gone[::-1].index(False) if False in gone else -1
        for number, (one, is_gone) in enumerate(zip(promised, gone, strict=True)):
            if not is_gone:
                continue
            is_suffix = number > last_there
            part = "suffix" if is_suffix else "prefix" if number < first_there else "middle"
            lost[part] += 1
            if not (may_lose_suffix and is_suffix):
                yield Finding("I1", f"{one.id} of {client} was acknowledged but is lost ({part})")


def _phantoms(history: History) -> Iterator[Finding]:
    """I2, I20: every stored message was sent, not rejected, and stored no more often than sent.

    Retries and dead letters are in separate topics. A broker may put a delayed or committed message
    again if it can't know whether its predecessor did.
    """
    for message_id, places in history.places.items():
        sends = history.sent.get(message_id, [])
        possible = sum(one.status is not Status.REFUSED for one in sends)
        where = ", ".join(map(str, places))
        if not sends:
            yield Finding("I2", f"{message_id} at {where} was never sent")
        elif not possible:
            yield Finding("I2", f"{message_id} at {where} was rejected")
        elif sum(place.topic == sends[0].topic for place in places) > possible:
            if history.is_remade(message_id, sends[0].invoked, NEVER):
                continue
            invariant = "I20" if sends[0].kind is Kind.DELAYED else "I2"
            yield Finding(
                invariant, f"{message_id} was sent {possible} times but is stored at {where}"
            )


def _integrity(history: History) -> Iterator[Finding]:
    """I3: a message equals the sent one, wherever it is seen."""
    seen: list[Stored | Delivered] = [*history.stored.values(), *history.delivered]
    for one in seen:
        sends = history.sent.get(one.id)
        if sends and one.digest != sends[0].digest:
            place = Place(one.topic, one.queue_id, one.queue_offset)
            yield Finding("I3", f"{one.id} at {place} differs from the sent message")


def _unread(history: History) -> Iterator[Finding]:
    """I4, I8: a message that was read at an offset stays there for all readers."""
    seen: dict[Place, str] = {}
    for one in history.delivered:
        place = Place(one.topic, one.queue_id, one.queue_offset)
        known = seen.setdefault(place, one.id)
        if known != one.id:
            yield Finding("I8", f"{place} first had {known}, then {one.id}")
    for place, message_id in seen.items():
        stored = history.stored.get(place)
        if stored is None:
            yield Finding("I4", f"{message_id} was read at {place}, which is empty at the end")
        elif stored.id != message_id:
            yield Finding(
                "I8", f"{message_id} was read at {place}, which has {stored.id} at the end"
            )


def _result_truth(history: History) -> Iterator[Finding]:
    """I9: an acknowledgement names the message's location."""
    for message_id, sends in history.sent.items():
        for one in sends:
            if one.status is not Status.OK or one.kind is not Kind.PLAIN:
                continue
            if one.queue_offset == NOWHERE:
                continue
            place = Place(one.topic, one.queue_id, one.queue_offset)
            stored = history.stored.get(place)
            if stored is not None and stored.id != message_id:
                yield Finding(
                    "I9", f"{message_id} was acknowledged at {place}, which has {stored.id}"
                )


def _gaps(history: History) -> Iterator[Finding]:
    """I7: a queue has each offset from its first on, once."""
    for place in history.stored_twice:
        yield Finding("I7", f"{place} was read twice at the end")
    queues: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for place in history.stored:
        queues[place.topic, place.queue_id].append(place.queue_offset)
    for (topic, queue_id), offsets in queues.items():
        offsets.sort()
        missing = offsets[-1] - offsets[0] + 1 - len(offsets)
        if missing:
            yield Finding("I7", f"{topic}/{queue_id} lacks {missing} offsets after {offsets[0]}")


def _real_time(history: History) -> Iterator[Finding]:
    """I12: a send that was answered before another one began precedes it in their queue."""
    queues: defaultdict[tuple[str, int], list[Sent]] = defaultdict(list)
    for sends in history.sent.values():
        for one in sends:
            if one.status is Status.OK and one.kind is Kind.PLAIN and one.queue_offset != NOWHERE:
                queues[one.topic, one.queue_id].append(one)
    for (topic, queue_id), these in queues.items():
        by_return = sorted(these, key=lambda one: one.returned)
        highest, at = NOWHERE, 0
        latest: Sent | None = None
        for one in sorted(these, key=lambda one: one.invoked):
            while at < len(by_return) and by_return[at].returned < one.invoked:
                if by_return[at].queue_offset > highest:
                    highest, latest = by_return[at].queue_offset, by_return[at]
                at += 1
            if latest is not None and one.queue_offset < highest:
                yield Finding(
                    "I12",
                    f"{one.id} was sent after {latest.id} was answered, but precedes it in "
                    f"{topic}/{queue_id}: offset {one.queue_offset} instead of more than {highest}",
                )


def _poll_order(history: History) -> Iterator[Finding]:
    """I13: the offsets of a queue rise within a session."""
    last: dict[tuple[str, str, str, int], int] = {}
    for one in history.delivered:
        key = (one.group, one.session, one.topic, one.queue_id)
        before = last.get(key, NOWHERE)
        if one.queue_offset <= before:
            yield Finding(
                "I13",
                f"{one.group} in session {one.session} received {one.topic}/{one.queue_id} "
                f"@{one.queue_offset} after @{before}",
            )
        last[key] = max(before, one.queue_offset)


def _shards(history: History) -> Iterator[Finding]:
    """I14: first deliveries of a key arrive in the order in which one client sent them."""
    number: dict[str, tuple[str, int]] = {}
    for client, sends in history.by_client.items():
        for position, each in enumerate(sends):
            if each.shard and each.id not in number:
                number[each.id] = (f"{client} {each.shard}", position)
    had: set[tuple[str, str]] = set()
    last: dict[tuple[str, str], tuple[int, str]] = {}
    for one in history.delivered:
        place = number.get(one.id)
        if place is None or (one.group, one.id) in had:
            continue
        had.add((one.group, one.id))
        key, position = place
        before, earlier = last.get((one.group, key), (NOWHERE, ""))
        if position < before:
            yield Finding(
                "I14", f"{one.group} received {one.id} after {earlier}, which has the same key"
            )
        last[one.group, key] = max((before, earlier), (position, one.id))


def _redeliveries(history: History, explained: Counter[str]) -> Iterator[Finding]:
    """I15: every second delivery has a cause."""
    last_delivery: dict[tuple[str, str], Delivered] = {}
    retries: Counter[tuple[str, str]] = Counter()
    replays: Counter[tuple[str, str]] = Counter()
    resent: Counter[tuple[str, str]] = Counter()
    at_place: dict[tuple[str, str, Place], Delivered] = {}
    for one in history.delivered:
        key = (one.group, one.id)
        place = Place(one.topic, one.queue_id, one.queue_offset)
        same_place = at_place.get((*key, place))
        before = same_place or last_delivery.get(key)
        retries[key] += bool(one.reconsume_times and same_place is None)
        if before is not None:
            if same_place is None and _is_replayed(history, one, replays[key]):
                cause: str | None = REPLAYED
                replays[key] += 1
            elif same_place is None and _is_resent(history, one, resent[key]):
                cause = RETRIED
                resent[key] += 1
            else:
                cause = _cause(history, before, one, same_place is None, retries[key])
            if cause is None:
                yield Finding("I15", f"{one.id} was delivered to {one.group} again at {place}")
            else:
                explained[cause] += 1
        last_delivery[key] = at_place[*key, place] = one


def _is_replayed(history: History, one: Delivered, arrivals: int) -> bool:
    """Whether a copy is one of the replayed ones, not counting copies that already arrived."""
    replays = history.replayed.get((one.group, one.id), [])
    return _is_uncounted_copy(one) and bisect_right(replays, one.at, key=at_of) > arrivals


def _is_resent(history: History, one: Delivered, arrivals: int) -> bool:
    """Whether a copy was sent by its client, not counting copies that already arrived.

    When the broker doesn't accept a returned message, RocketMQ's client sends it to the group's
    retry topic as a new message. If it has to try again, that message has lost its retry count
    (DefaultMQProducerImpl.sendKernelImpl removes RECONSUME_TIME, 4.9.7).
    """
    if not _is_uncounted_copy(one):
        return False
    backs = history.gave_back.get((one.group, one.id), [])
    before = backs[: bisect_right(backs, one.at, key=at_of)]
    return sum(each.status is Status.MAYBE for each in before) > arrivals


def _is_uncounted_copy(one: Delivered) -> bool:
    """Whether a message of the group's retry topic has no retry count."""
    return not one.reconsume_times and one.topic == f"{RETRY_TOPICS}{one.group}"


def _cause(
    history: History,
    before: Delivered,
    one: Delivered,
    is_new_place: bool,
    retries: int,
) -> str | None:
    """Return why a message was delivered again, or None without a reason.

    Each copy made by a retry, `retries` so far, requires that the message was returned. The client
    may have tried that more than once, and so may a broker that crashed. A cause doesn't explain
    messages that are before the group's stored progress at that time.
    """
    if one.reconsume_times:
        backs = history.gave_back.get((one.group, one.id), [])
        backs = backs[: bisect_right(backs, one.at, key=at_of)]
        needed = retries if is_new_place else one.reconsume_times
        if is_new_place or one.reconsume_times > before.reconsume_times:
            if len(backs) >= needed or any(each.status is Status.MAYBE for each in backs):
                return RETRIED
            return Cause.CRASH.value if backs and history.crashed(backs[0].at, one.at) else None
    # The other copy may have been returned meanwhile.
    if is_new_place and one.reconsume_times <= before.reconsume_times:
        sends = sum(each.status is not Status.REFUSED for each in history.sent.get(one.id, []))
        if sends > 1:
            return SENT_TWICE
        # The broker crashed before it put the message again, however late the first copy was read.
        if history.is_remade(one.id, history.sent[one.id][0].invoked, one.at):
            return Cause.CRASH.value
    for group in (one.group, ""):
        causes = history.causes.get(group, [])
        number = bisect_right(causes, one.at, key=at_of)
        if number and causes[number - 1].at >= before.at:
            cause = causes[number - 1]
            return None if _is_behind(history, one, cause.at) else cause.cause.value
    return None


def _is_behind(history: History, one: Delivered, since: int) -> bool:
    """Whether the broker has since reported progress past a message.

    A query sent at the same simulated nanosecond as the delivery counts as later.
    """
    progress = history.progress.get((one.group, one.topic, one.queue_id), [])
    number = bisect_left(progress, one.at, key=at_of)
    return (
        bool(number)
        and progress[number - 1].at > since
        and progress[number - 1].offset > one.queue_offset
    )


def _early(history: History) -> Iterator[Finding]:
    """I19: a delayed message arrives when its delay is over, not before.

    The delay is by wall clock: a new master whose clock is ahead delivers that much earlier.
    """
    ahead = [one for one in history.causes[""] if one.ahead_ns > 0]
    for one in history.delivered:
        sends = history.sent.get(one.id, [])
        if not sends or sends[0].kind is not Kind.DELAYED or one.reconsume_times:
            continue
        sent_at = min(each.invoked for each in sends)
        due = sent_at + sends[0].delay_ns
        if one.at < due - sum(each.ahead_ns for each in ahead if sent_at <= each.at <= one.at):
            yield Finding("I19", f"{one.id} arrived {(due - one.at) / 1e6:.1f} ms early")


def _halves(history: History) -> Iterator[Finding]:
    """I22, I23, I24: half messages are invisible; the first outcome is final."""
    first: dict[str, int] = {}
    for one in history.delivered:
        first.setdefault(one.id, one.at)
    for message_id, sends in history.sent.items():
        if sends[0].kind is not Kind.HALF:
            continue
        ends = sorted(history.ends.get(message_id, []), key=lambda one: one.invoked)
        commits = [one for one in ends if one.outcome is Outcome.COMMIT]
        seen_at = first.get(message_id)
        is_there = message_id in history.places or seen_at is not None
        if is_there and not commits:
            state = "was rolled back" if ends else "has no outcome"
            yield Finding("I22", f"{message_id} {state} but was delivered")
        elif seen_at is not None and seen_at < commits[0].invoked:
            yield Finding("I22", f"{message_id} was delivered before its commit")
        elif is_there and ends[0].outcome is Outcome.ROLLBACK:
            yield Finding("I24", f"{message_id} was rolled back first but was delivered")
        elif (
            not is_there
            and len(commits) == len(ends) > 0
            and any(one.status is Status.OK for one in sends)
        ):
            yield Finding("I23", f"{message_id} was committed but is missing")


CHECKS: tuple[Callable[[History], Iterator[Finding]], ...] = (
    _phantoms,
    _integrity,
    _gaps,
    _unread,
    _result_truth,
    _real_time,
    _poll_order,
    _shards,
    _early,
    _halves,
    *group_checks.CHECKS,
    *server_checks.CHECKS,
)
