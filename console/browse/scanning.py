"""A search through messages: newest first, in steps that are bounded, and go on where one ended.

Nothing of it is kept: an address says what is looked for, from where on, and how far the search
has come. Who leaves the page ends it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from console.gateway.access import gateway
from console.gateway.answers import BrokerQueue
from console.gateway.stored import Place
from console.history.range import whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.browse.content import Filter
    from console.gateway.stored import StoredMessage, Wanted

FOUND_MAX = 100
READ_AT_ONCE = 500
STEP_S = 1.5
"""So long one answer takes; the page shows how far it is after each."""
GO_MESSAGES_MAX, GO_MS_MAX = 1_000_000, 120_000
"""Then somebody has to say that it is to go on."""


class Progress(NamedTuple):
    """How far a search has come, as an address carries it.

    `total` is what there is to look through, `begun` what was left when this go began, `ms` and
    `found` count since then.
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
        """Messages a second, None while nothing says."""
        return (self.begun - self.left) * 1_000 / self.ms if self.ms else None

    @property
    def remaining_s(self) -> float | None:
        return self.left / self.rate if self.rate else None

    @property
    def is_done(self) -> bool:
        return self.left <= 0

    @property
    def goes_on(self) -> bool:
        """Whether it does so without being asked."""
        return not (
            self.is_done
            or self.found >= FOUND_MAX
            or self.begun - self.left >= GO_MESSAGES_MAX
            or self.ms >= GO_MS_MAX
        )

    @property
    def place_query(self) -> dict[str, str]:
        """From where on, and of how many: what a new go needs."""
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
    """Return the progress that an address carries; what makes no sense is a new search."""
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
    """What a step found, and where it ended."""

    messages: tuple[StoredMessage, ...]
    progress: Progress
    unread_bodies: int
    """So many bodies were not, or not wholly, looked into."""


def step(wanted: Wanted, condition: Filter, progress: Progress) -> Step:
    """Look through messages until some are found, time is up, or all have been seen.

    Raises:
        GatewayError: a broker did not answer; nothing says what it has.
    """
    began = time.monotonic()
    found: list[StoredMessage] = []
    before, total, begun, left = progress.before, progress.total, progress.begun, 0
    room = FOUND_MAX - progress.found if progress.found < FOUND_MAX else FOUND_MAX
    unread = 0
    while True:
        count = READ_AT_ONCE if condition else FOUND_MAX
        came = gateway().browse.newest(wanted, before, count)
        total = total or came.total
        begun = begun or came.total
        left = came.left
        for at, message in enumerate(came.messages):
            before = message.place
            if condition.looks_into_bodies and (message.body is None or message.is_cut):
                unread += 1
            if condition.matches(message):
                found.append(message)
                if len(found) == room:
                    left += len(came.messages) - at - 1
                    break
        spent = time.monotonic() - began
        if not came.messages or not left or len(found) >= room or spent >= STEP_S:
            break
    if not came.messages:
        left = 0
    ms = progress.ms + int(spent * 1_000)
    so_far = progress.found + len(found)
    return Step(tuple(found), Progress(before, total, left, begun, ms, so_far), unread)
