"""The numbered events of one watch, both waiting and sent.

Events are grouped in stretches of consecutive numbers, which makes bursts cheap. Sent events are
kept as the text that was sent and are decoded only on a resume: old event objects are no longer in
any CPU cache, so freeing one costs as much as reporting another event.
"""

from __future__ import annotations

from collections import Counter, deque
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from broker_core.trace.event import BEFORE_NUMBER, WatchedEvent, decode_event, pushed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ADDED_MAX = 256
"""Maximum length of a stretch built from single events; a full ring drops its first event each
time.
"""


class Stretch(Protocol):
    """Events numbered consecutively from `first`, with the same matched filters."""

    first: int
    head: bytes
    """The bytes between an event's number and its ending."""
    events: list[WatchedEvent]

    def stages(self) -> Mapping[str, int]:
        """Return the number of events per stage."""
        ...

    def body(self, before: bytes = b"", behind: bytes = b"") -> bytes:
        """Return the events as JSON separated by commas, between `before` and `behind`."""
        ...


class Numbered:
    """A stretch in Python. The native turn has its own version."""

    __slots__ = ("events", "first", "head")

    def __init__(self, first: int, head: bytes, events: list[WatchedEvent]) -> None:
        self.first = first
        self.head = head
        self.events = events

    def stages(self) -> Mapping[str, int]:
        """Return the number of events per stage."""
        return Counter(map(_STAGE_OF, self.events))

    def body(self, before: bytes = b"", behind: bytes = b"") -> bytes:
        """Return the events as JSON separated by commas, between `before` and `behind`."""
        head = self.head
        numbers = count(self.first)
        parts = [
            b"%b%d%b%b" % (BEFORE_NUMBER, next(numbers), head, each.ending) for each in self.events
        ]
        return b"%b%b%b" % (before, b",".join(parts), behind)


class _Sent:
    """A push: its text, its number of events, how many are forgotten, and its last number."""

    __slots__ = ("body", "count", "forgotten", "last")

    def __init__(self, body: bytes, count: int, last: int) -> None:
        self.body = body
        self.count = count
        self.last = last
        self.forgotten = 0


class Ring:
    """Keeps the newest events, up to a limit. Event loop only.

    Attributes:
        waiting: number of events that haven't been sent.
    """

    def __init__(
        self, events_max: int, numbered_type: Callable[[int, bytes, list[WatchedEvent]], Stretch]
    ) -> None:
        self.waiting = 0
        self._events_max = events_max
        self._numbered = numbered_type
        self._waits: deque[Stretch] = deque()
        self._sent: deque[_Sent] = deque()
        self._sent_count = 0

    def add(self, number: int, head: bytes, event: WatchedEvent) -> None:
        """Add an event."""
        last = self._waits[-1] if self._waits else None
        if (
            last is not None
            and last.head is head
            and last.first + len(last.events) == number
            and len(last.events) < ADDED_MAX
        ):
            last.events.append(event)
        else:
            self._waits.append(self._numbered(number, head, [event]))
        self.waiting += 1
        self._forget()

    def extend(self, stretch: Stretch) -> None:
        """Add the events of a stretch."""
        self._waits.append(stretch)
        self.waiting += len(stretch.events)
        self._forget()

    def batch(self, events_max: int) -> tuple[list[Stretch], int]:
        """Return the oldest waiting stretches with up to `events_max` events, and their number."""
        taken: list[Stretch] = []
        room = events_max
        for place, stretch in enumerate(self._waits):
            if len(stretch.events) > room:
                if room:
                    taken.append(self._split(place, room))
                return taken, events_max
            taken.append(stretch)
            room -= len(stretch.events)
        return taken, events_max - room

    def sent(self, batch: Sequence[Stretch], body: bytes, count: int) -> None:
        """Remove a batch from the waiting events; keep `body`, with the `count` sent events."""
        for stretch in batch:
            self._waits.popleft()
            self.waiting -= len(stretch.events)
        if count:
            self._sent.append(_Sent(body, count, batch[-1].first + len(batch[-1].events) - 1))
            self._sent_count += count

    def rewind(self, number: int) -> None:
        """Queue the sent events after a number again; drop the other sent events."""
        # Decoding a text takes milliseconds, so only the needed ones are decoded.
        wanted = [each for each in self._sent if each.last > number]
        again = [stretch for each in wanted for stretch in self._again(each, number)]
        self._waits.extendleft(reversed(again))
        self.waiting += sum(len(each.events) for each in again)
        self._sent.clear()
        self._sent_count = 0

    def _again(self, sent: _Sent, behind: int) -> Iterator[Stretch]:
        """Yield the events that were sent after a number and aren't forgotten."""
        made: Stretch | None = None
        for place, (number, head, text) in enumerate(pushed(sent.body)):
            if place < sent.forgotten or number <= behind:
                continue
            if made is None or made.head != head or number != made.first + len(made.events):
                if made is not None:
                    yield made
                made = self._numbered(number, head, [])
            made.events.append(WatchedEvent(decode_event(text)))
        if made is not None:
            yield made

    def _split(self, place: int, events: int) -> Stretch:
        """Split a stretch after so many events; return its first part."""
        whole = self._waits[place]
        begin = self._numbered(whole.first, whole.head, whole.events[:events])
        self._waits[place] = begin
        rest = self._numbered(whole.first + events, whole.head, whole.events[events:])
        self._waits.insert(place + 1, rest)
        return begin

    def _forget(self) -> None:
        over = self._sent_count + self.waiting - self._events_max
        while over > 0 and self._sent:
            sent = self._sent[0]
            gone = min(over, sent.count - sent.forgotten)
            sent.forgotten += gone
            if sent.forgotten == sent.count:
                self._sent.popleft()
            self._sent_count -= gone
            over -= gone
        while over > 0:
            stretch = self._waits[0]
            gone = min(over, len(stretch.events))
            if gone < len(stretch.events):
                del stretch.events[:gone]
                stretch.first += gone
            else:
                self._waits.popleft()
            self.waiting -= gone
            over -= gone


_STAGE_OF = attrgetter("stage")
