"""Ring: the numbered events that a watch keeps, those that wait and those that were sent.

Events lie in stretches with one number after the other, so that what comes together costs little
each.
"""

from __future__ import annotations

from collections import Counter, deque
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from broker_core.trace.event import Emitted

ADDED_MAX = 256
"""So many that come one by one make a stretch: of a full ring its first event goes each time."""


class Stretch(Protocol):
    """Events whose numbers follow each other from `first` on, with the same matched filters."""

    first: int
    head: bytes
    """What stands between an event's number and its ending."""
    events: list[Emitted]

    def stages(self) -> Mapping[str, int]:
        """Return how many of each stage they are."""
        ...

    def body(self, before: bytes = b"", behind: bytes = b"") -> bytes:
        """Return their JSON, with commas between them, and something around it."""
        ...


class Numbered:
    """A Stretch. The native turn has a twin."""

    __slots__ = ("events", "first", "head")

    def __init__(self, first: int, head: bytes, events: list[Emitted]) -> None:
        self.first = first
        self.head = head
        self.events = events

    def stages(self) -> Mapping[str, int]:
        """Return how many of each stage they are."""
        return Counter(map(_STAGE_OF, self.events))

    def body(self, before: bytes = b"", behind: bytes = b"") -> bytes:
        """Return their JSON, with commas between them, and something around it."""
        head = self.head
        numbers = count(self.first)
        parts = [b'{"seq":"%d%b%b' % (next(numbers), head, each.ending) for each in self.events]
        return b"%b%b%b" % (before, b",".join(parts), behind)


class Ring:
    """Keeps so many events at most; the oldest go first. Event loop only.

    Attributes:
        waiting: how many wait.
    """

    def __init__(
        self, events_max: int, numbered_type: Callable[[int, bytes, list[Emitted]], Stretch]
    ) -> None:
        self.waiting = 0
        self._events_max = events_max
        self._numbered = numbered_type
        self._waits: deque[Stretch] = deque()
        self._sent: deque[Stretch] = deque()
        self._sent_count = 0

    def add(self, number: int, head: bytes, event: Emitted) -> None:
        """Take an event."""
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
        """Take all of these events."""
        self._waits.append(stretch)
        self.waiting += len(stretch.events)
        self._forget()

    def batch(self, events_max: int) -> tuple[list[Stretch], int]:
        """Return what waits, from its beginning, so many events at most, and how many they are."""
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

    def sent(self, batch: Sequence[Stretch], shown: Sequence[Stretch]) -> None:
        """Take note that a batch does not wait any more, and what of it was sent."""
        for stretch in batch:
            self._waits.popleft()
            self.waiting -= len(stretch.events)
        for stretch in shown:
            self._sent.append(stretch)
            self._sent_count += len(stretch.events)

    def rewind(self, number: int) -> None:
        """Have what was sent behind a number wait again; forget what was sent before."""
        while self._sent:
            stretch = self._sent.pop()
            before = max(0, number + 1 - stretch.first)
            again = stretch.events[before:]
            if again:
                self._waits.appendleft(self._numbered(stretch.first + before, stretch.head, again))
                self.waiting += len(again)
        self._sent_count = 0

    def _split(self, place: int, events: int) -> Stretch:
        """Part the stretch at a place; return the first of the two."""
        whole = self._waits[place]
        begin = self._numbered(whole.first, whole.head, whole.events[:events])
        self._waits[place] = begin
        rest = self._numbered(whole.first + events, whole.head, whole.events[events:])
        self._waits.insert(place + 1, rest)
        return begin

    def _forget(self) -> None:
        over = self._sent_count + self.waiting - self._events_max
        while over > 0:
            stretch = (self._sent or self._waits)[0]
            gone = min(over, len(stretch.events))
            if self._sent:
                self._sent_count -= gone
            else:
                self.waiting -= gone
            if gone < len(stretch.events):
                del stretch.events[:gone]
                stretch.first += gone
            else:
                (self._sent or self._waits).popleft()
            over -= gone


_STAGE_OF = attrgetter("stage")
