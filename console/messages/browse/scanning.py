"""Searches messages, newest first, in bounded steps that continue where the last one ended.

The server stores nothing: the query string holds the search, its start and its progress. Leaving
the page ends the search.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from console.gateway.access import gateway
from console.lib.stored import BrokerQueue, Place
from console.observe.history.range import whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.lib.content import Filter
    from console.lib.stored import MessageRange, StoredMessage

FOUND_MAX = 100
READ_AT_ONCE = 500
STEP_S = 1.5
"""The maximum time of one step; the page shows progress after each step."""
GO_MESSAGES_MAX, GO_MS_MAX = 1_000_000, 120_000
"""After these limits the person must ask for the search to continue."""


class Progress(NamedTuple):
    """The progress of a search, as stored in the query string.

    `total` is the number of messages to search, `begun` how many were left when this run of steps
    began; `ms` and `found` count from then on.
    """

    before: Place | None = None
    total: int = 0
    left: int = 0
    begun: int = 0
    ms: int = 0
    found: int = 0

    @property
    def searched(self) -> int:
        return max(0, self.total - self.left)

    @property
    def rate(self) -> float | None:
        """Messages per second, None while unknown."""
        return (self.begun - self.left) * 1_000 / self.ms if self.ms else None

    @property
    def remaining_s(self) -> float | None:
        return self.left / self.rate if self.rate else None

    @property
    def is_done(self) -> bool:
        return self.left <= 0

    @property
    def is_continuing(self) -> bool:
        """Whether the search continues without being asked to."""
        return not (
            self.is_done
            or self.found >= FOUND_MAX
            or self.begun - self.left >= GO_MESSAGES_MAX
            or self.ms >= GO_MS_MAX
        )

    @property
    def place_query(self) -> dict[str, str]:
        """The parameters that a new run of steps needs: start and number of messages."""
        if self.before is None:
            return {}
        store_ms, queue, offset = self.before
        return {"before": f"{store_ms}:{offset}:{queue}", "total": str(self.total)}

    @property
    def step_query(self) -> dict[str, str]:
        return self.place_query | {
            "begun": str(self.begun),
            "ms": str(self.ms),
            "found": str(self.found),
        }


def progress_of(asked: Mapping[str, str]) -> Progress:
    """Return the progress in a query string; invalid values start a new search."""
    store_ms, _colon, rest = asked.get("before", "").partition(":")
    offset, _colon, queue = rest.partition(":")
    moment, number = whole(store_ms), whole(offset)
    try:
        place = BrokerQueue.parse(queue)
    except ValueError:
        return Progress()
    if moment is None or number is None:
        return Progress()
    counts = {name: whole(asked.get(name, "")) or 0 for name in ("total", "begun", "ms", "found")}
    return Progress(Place(moment, place, number), left=counts["begun"], **counts)


class Step(NamedTuple):
    """The result of a step, and the progress after it."""

    messages: tuple[StoredMessage, ...]
    progress: Progress
    unread_bodies: int
    """The number of bodies that couldn't be searched completely."""


def step(wanted: MessageRange, condition: Filter, progress: Progress) -> Step:
    """Search until enough messages match, the time is up, or all have been read.

    Raises:
        GatewayError: a broker didn't respond, so its messages are unknown.
    """
    began = time.monotonic()
    found: list[StoredMessage] = []
    before, total, begun, left = progress.before, progress.total, progress.begun, 0
    room = FOUND_MAX - progress.found if progress.found < FOUND_MAX else FOUND_MAX
    unread = 0
    while True:
        count = READ_AT_ONCE if condition else FOUND_MAX
        batch = gateway().browse.newest(wanted, before, count)
        total = total or batch.total
        begun = begun or batch.total
        left = batch.left
        for at, message in enumerate(batch.messages):
            before = message.place
            if condition.reads_bodies and (message.body is None or message.is_cut):
                unread += 1
            if condition.matches(message):
                found.append(message)
                if len(found) == room:
                    left += len(batch.messages) - at - 1
                    break
        spent = time.monotonic() - began
        if not batch.messages or not left or len(found) >= room or spent >= STEP_S:
            break
    if not batch.messages:
        left = 0
    ms = progress.ms + int(spent * 1_000)
    so_far = progress.found + len(found)
    return Step(tuple(found), Progress(before, total, left, begun, ms, so_far), unread)
