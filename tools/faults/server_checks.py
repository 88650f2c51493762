"""Checks of a history's servers: disks, logs, masters, faults."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

from tools.faults.history_index import Finding
from tools.faults.operations import NEVER, NOWHERE, Cause, DiskFailed, Kind, Sent, Status, Stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tools.faults.history_index import History


def _failed_disks(history: History) -> Iterator[Finding]:
    """I5: after a failed flush, a server acknowledges nothing until it restarts."""
    for failed in history.disks_failed:
        until = _started_again(history, failed)
        for sends in history.sent.values():
            for one in sends:
                is_after = failed.at < one.invoked and one.returned < until
                if one.status is Status.OK and one.server == failed.server and is_after:
                    yield Finding(
                        "I5", f"{one.id} was acknowledged by {one.server} after a failed flush"
                    )


def _started_again(history: History, failed: DiskFailed) -> int:
    return min((at for at in history.starts[failed.server] if at > failed.at), default=NEVER)


def _bounds(history: History) -> Iterator[Finding]:
    """I11: a queue's first offset never falls, and its end is past all acknowledged messages.

    A server with a failed flush shows only data that it had flushed before.
    """
    failed = [(one.server, one.began, _started_again(history, one)) for one in history.disks_failed]
    acknowledged: defaultdict[tuple[str, int], list[Sent]] = defaultdict(list)
    for sends in history.sent.values():
        for one in sends:
            if one.status is Status.OK and one.kind is Kind.PLAIN and one.queue_offset != NOWHERE:
                acknowledged[one.topic, one.queue_id].append(one)
    for (topic, queue_id), bounds in history.bounds.items():
        by_return = sorted(acknowledged[topic, queue_id], key=lambda one: one.returned)
        at, highest, low = 0, NOWHERE, 0
        for each in sorted(bounds, key=lambda one: one.invoked):
            while at < len(by_return) and by_return[at].returned < each.invoked:
                highest = max(highest, by_return[at].queue_offset)
                at += 1
            is_whole = not any(
                each.server == server and began <= each.invoked < until
                for server, began, until in failed
            )
            if each.high <= highest and is_whole:
                yield Finding(
                    "I11",
                    f"{topic}/{queue_id} ended at {each.high}, but @{highest} was acknowledged",
                )
            if each.low < low:
                yield Finding("I11", f"{topic}/{queue_id} began at {low}, then at {each.low}")
            low = max(low, each.low)


def _store_times(history: History) -> Iterator[Finding]:
    """I10, I21: by the broker's clock, store times never fall within a queue.

    If the clock steps back, the store's clock stops, also across a restart.
    """
    queues: defaultdict[tuple[str, int], list[Stored]] = defaultdict(list)
    for place, one in history.stored.items():
        if one.stored_ms:
            queues[place.topic, place.queue_id].append(one)
    for (topic, queue_id), these in queues.items():
        these.sort(key=lambda one: one.queue_offset)
        for before, one in pairwise(these):
            if one.stored_ms < before.stored_ms:
                yield Finding(
                    "I10",
                    f"{one.id} in {topic}/{queue_id} is {before.stored_ms - one.stored_ms} ms "
                    f"older than {before.id} before it",
                )


def _topics(history: History) -> Iterator[Finding]:
    """I6: a topic with an acknowledged message exists, also after each start."""
    since: dict[str, int] = {}
    for sends in history.sent.values():
        for one in sends:
            if one.status is Status.OK:
                since[one.topic] = min(since.get(one.topic, NEVER), one.returned)
    for unknown in history.unknown:
        if since.get(unknown.topic, NEVER) < unknown.invoked:
            yield Finding("I6", f"the broker lost topic {unknown.topic}")


def _copies(history: History) -> Iterator[Finding]:
    """I26: everything a master counts as replicated is on its slave."""
    for one in history.acked:
        if one.reported > one.had:
            yield Finding(
                "I26",
                f"{one.server} counted {one.reported} as replicated, but the slave had {one.had}",
            )


def _same_logs(history: History) -> Iterator[Finding]:
    """I25: at the end all servers have the same log."""
    for one, other in pairwise(history.logs):
        if (one.end, one.digest) != (other.end, other.digest):
            yield Finding("I25", f"the logs of {one.server} and {other.server} differ")


def _one_master(history: History) -> Iterator[Finding]:
    """I29: only one server acknowledges at a time; a promotion is needed to change it."""
    promotions = sorted(one.at for one in history.causes[""] if one.cause is Cause.FAILOVER)
    answered = [
        one
        for sends in history.sent.values()
        for one in sends
        if one.status is Status.OK and one.server
    ]
    answered.sort(key=lambda one: one.returned)
    for before, one in pairwise(answered):
        if before.server == one.server:
            continue
        number = bisect_right(promotions, one.returned)
        if not number or promotions[number - 1] < before.invoked:
            yield Finding(
                "I29",
                f"{one.id} was acknowledged by {one.server} after {before.id} by {before.server}",
            )


def _recoveries(history: History) -> Iterator[Finding]:
    """I31: after each fault a send is acknowledged again."""
    for one in history.faults:
        if one.recovered == NEVER:
            yield Finding("I31", f"no send was acknowledged after {one.what}")


def _errors(history: History) -> Iterator[Finding]:
    """I32: in a run with faults, rejections happen only during a fault or its recovery."""
    faults = sorted(history.faults, key=lambda one: one.began)
    for sends in history.sent.values() if faults else ():
        for one in sends:
            if one.status is not Status.REFUSED:
                continue
            number = bisect_right(faults, one.returned, key=lambda each: each.began)
            if not number or faults[number - 1].recovered + one.learns_ns < one.invoked:
                yield Finding("I32", f"{one.id} was rejected outside of any fault")


CHECKS: tuple[Callable[[History], Iterator[Finding]], ...] = (
    _failed_disks,
    _bounds,
    _store_times,
    _topics,
    _copies,
    _same_logs,
    _one_master,
    _recoveries,
    _errors,
)
