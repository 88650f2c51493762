"""Checks of a history's groups: their deliveries and their progress."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

from tools.faults.history_index import Finding, at_of
from tools.faults.operations import Cause, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tools.faults.history_index import History
    from tools.faults.operations import Delivered, Happened

DEAD_LETTERS = "%DLQ%"
KEPT_WITHIN_NS = {Cause.CRASH: 15_000_000_000, Cause.FAILOVER: 30_000_000_000}
"""Progress reaches the disk every five seconds and a slave every ten; machines stall."""


def _at_least_once(history: History) -> Iterator[Finding]:
    """I15, I18: each group of a topic gets each of its messages, except filtered ones.

    A group that acknowledges messages acknowledges each of them, or returns it.
    """
    groups: defaultdict[str, set[str]] = defaultdict(set)
    had: set[tuple[str, str]] = set()
    for one in history.delivered:
        sends = history.sent.get(one.id)
        if sends:
            groups[sends[0].topic].add(one.group)
            if one.group in sends[0].unwanted_by and (one.group, one.id) not in had:
                yield Finding(
                    "I18", f"{one.id} was delivered to {one.group}, whose filter rejects it"
                )
        had.add((one.group, one.id))
    acknowledging = {group for group, _ in history.consumed}
    settled = history.consumed | history.gave_back.keys()
    for message_id in history.places:
        sends = history.sent.get(message_id)
        if not sends:
            continue
        for group in groups[sends[0].topic]:
            key = (group, message_id)
            if key in had:
                if group in acknowledging and key not in settled:
                    yield Finding("I15", f"{message_id} was never consumed by {group}")
            elif group not in sends[0].unwanted_by:
                yield Finding("I15", f"{message_id} was never delivered to {group}")


def _offsets(history: History) -> Iterator[Finding]:
    """I16: a group's progress only goes back by a reset, or to the progress saved before a crash.

    After a crash it's at least the progress of some seconds before.
    """
    for (group, topic, queue_id), these in history.progress.items():
        causes = [one for key in (group, "") for one in history.causes.get(key, [])]
        times = [one.at for one in these]
        for at, (before, one) in enumerate(pairwise(these)):
            if one.offset >= before.offset:
                continue
            between = [cause for cause in causes if before.at <= cause.at <= one.at]
            if any(cause.cause is Cause.RESET for cause in between):
                continue
            kept = before.offset
            for cause in between:
                number = bisect_right(times, _unsaved_since(history, cause))
                if cause.cause in KEPT_WITHIN_NS:
                    # An earlier crash may have restored an older value.
                    since = min(each.offset for each in these[max(0, number - 1) : at + 1])
                    kept = min(kept, since if number else 0)
            if one.offset < kept:
                yield Finding(
                    "I16",
                    f"{group} in {topic}/{queue_id} went from {before.offset} to {one.offset}",
                )


def _unsaved_since(history: History, cause: Happened) -> int:
    """Return the earliest time from which progress may be unsaved.

    A stopped slave copies no progress: before a failover, faults include the time before them.
    """
    kept_at = cause.at - KEPT_WITHIN_NS.get(cause.cause, 0)
    if cause.cause is not Cause.FAILOVER:
        return kept_at
    began = [
        one.began for one in history.faults if one.began < cause.at and one.recovered > kept_at
    ]
    return min([kept_at, *(at - KEPT_WITHIN_NS[cause.cause] for at in began)])


def _retries(history: History) -> Iterator[Finding]:
    """I17: each retry increments the retry count, and never arrives early.

    A message that was certainly returned is delivered again.
    """
    times: dict[tuple[str, str], int] = {}
    last: dict[tuple[str, str], Delivered] = {}
    for one in history.delivered:
        key = (one.group, one.id)
        before = times.get(key, 0)
        if one.reconsume_times > before + 1:
            yield Finding(
                "I17",
                f"{one.id} reached {one.group} as retry {one.reconsume_times} after {before}",
            )
        backs = history.gave_back.get(key)
        if backs and one.reconsume_times > before:
            number = bisect_left(backs, one.at, key=at_of)
            # It's due after the earliest of those returned before it.
            due = min((each.at + each.delay_ns for each in backs[before:number]), default=0)
            if one.at < due:
                yield Finding(
                    "I17", f"{one.id} reached {one.group} {(due - one.at) / 1e6:.1f} ms early"
                )
        times[key] = max(before, one.reconsume_times)
        last[key] = one
    for (group, message_id), backs in history.gave_back.items():
        back = backs[-1]
        delivery = last.get((group, message_id))
        is_due = back.status is Status.OK and not back.is_dead
        if is_due and (delivery is None or delivery.at <= back.at):
            yield Finding("I17", f"{message_id} was returned by {group} but never redelivered")


def _replays(history: History) -> Iterator[Finding]:
    """I15: a dead letter that was certainly replayed to its group is delivered again."""
    if not history.replayed:
        return
    last = {(one.group, one.id): one.at for one in history.delivered}
    for (group, message_id), replays in history.replayed.items():
        sure = [one.at for one in replays if one.status is Status.OK]
        if sure and last.get((group, message_id), 0) <= max(sure):
            yield Finding("I15", f"{message_id} was replayed to {group} but never redelivered")


def _dead_letters(history: History) -> Iterator[Finding]:
    """I17: exactly the messages that a group gave up are its dead letters."""
    buried: Counter[tuple[str, str]] = Counter()
    for message_id, places in history.places.items():
        for place in places:
            if place.topic.startswith(DEAD_LETTERS):
                buried[place.topic.removeprefix(DEAD_LETTERS), message_id] += 1
    for key in history.gave_back.keys() | buried.keys():
        backs = [one for one in history.gave_back.get(key, []) if one.is_dead]
        count, (group, message_id) = buried[key], key
        if count and not backs:
            yield Finding(
                "I17", f"{message_id} is a dead letter of {group}, which didn't give it up"
            )
        elif not count and any(one.status is Status.OK for one in backs):
            yield Finding("I17", f"{message_id} was given up by {group} but isn't a dead letter")
        elif count > len(backs) and all(one.status is Status.OK for one in backs):
            yield Finding("I17", f"{message_id} was stored as {count} dead letters of {group}")


CHECKS: tuple[Callable[[History], Iterator[Finding]], ...] = (
    _at_least_once,
    _offsets,
    _retries,
    _replays,
    _dead_letters,
)
