"""The distribution of a search's messages over queues, tags, senders, sizes and hours."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from django.utils.translation import gettext_lazy

from console.gateway.access import gateway

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.utils.functional import Promise

    from console.lib.content import Filter
    from console.lib.stored import MessageRange, Place, StoredMessage

LOOKED_AT_MAX = 20_000
LOOK_S = 4.0
READ_AT_ONCE = 500
BARS_MAX = 12
HOUR_MS = 3_600_000
SIZE_FIRST = 64


class Bar(NamedTuple):
    """A value and its count; hours set `at_ms` and sizes set `size`, which pages format."""

    text: str
    times: int
    percent: float
    at_ms: int | None = None
    size: int | None = None


class Spread(NamedTuple):
    """The most frequent values of a property, and how many other values exist."""

    label: Promise | str
    bars: tuple[Bar, ...]
    others: int


class Distribution(NamedTuple):
    """`found` of the `looked_at` messages match the search; `total` are in the time range."""

    spreads: tuple[Spread, ...]
    found: int
    looked_at: int
    total: int
    is_whole: bool


KINDS: tuple[tuple[Promise | str, Callable[[StoredMessage], str]], ...] = (
    (gettext_lazy("Queue"), lambda message: str(message.queue)),
    (gettext_lazy("Tag"), lambda message: message.tags),
    (
        gettext_lazy("Producer's host"),
        lambda message: message.born_host.rpartition(":")[0],
    ),
    (gettext_lazy("Size"), lambda message: size_of(message.body_bytes)),
    (gettext_lazy("Hour"), lambda message: str(message.store_ms // HOUR_MS * HOUR_MS)),
)
HOUR_KIND, SIZE_KIND = 4, 3


def size_of(size: int) -> str:
    """Return the power of two, at least 64, that a size is below."""
    above = SIZE_FIRST
    while size >= above:
        above *= 2
    return str(above)


def distribution_of(wanted: MessageRange, condition: Filter) -> Distribution:
    """Read the newest messages of a search, as many as time allows.

    Raises:
        GatewayError: a broker didn't respond.
    """
    counters: list[Counter[str]] = [Counter() for _kind in KINDS]
    before: Place | None = None
    found = looked_at = total = 0
    until = time.monotonic() + LOOK_S
    is_whole = False
    while looked_at < LOOKED_AT_MAX and time.monotonic() < until:
        batch = gateway().browse.newest(wanted, before, READ_AT_ONCE)
        total = total or batch.total
        looked_at += len(batch.messages)
        for message in batch.messages:
            if condition.matches(message):
                found += 1
                for counter, (_label, value_of) in zip(counters, KINDS, strict=True):
                    counter[value_of(message)] += 1
        if not batch.messages or not batch.left:
            is_whole = True
            break
        before = batch.messages[-1].place
    spreads = tuple(
        spread_of(kind, label, counter)
        for kind, ((label, _value_of), counter) in enumerate(zip(KINDS, counters, strict=True))
    )
    return Distribution(spreads, found, looked_at, max(total, looked_at), is_whole)


def spread_of(kind: int, label: Promise | str, counter: Counter[str]) -> Spread:
    """Return the most frequent values; hours and sizes in natural order."""
    shown = counter.most_common(BARS_MAX)
    if kind in (HOUR_KIND, SIZE_KIND):
        shown.sort(key=lambda pair: int(pair[0]))
    most = max((count for _text, count in shown), default=1)
    bars = tuple(
        Bar(
            text,
            count,
            100 * count / most,
            int(text) if kind == HOUR_KIND else None,
            int(text) if kind == SIZE_KIND else None,
        )
        for text, count in shown
    )
    return Spread(label, bars, len(counter) - len(shown))
