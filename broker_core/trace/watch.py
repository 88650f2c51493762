"""One watcher's numbered events: filter, keep for a while, push, and count the lost ones."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from broker_core.isolation import isolated
from broker_core.message.names import RMQ_SYS_TRANS_HALF_TOPIC, retry_topic
from broker_core.trace.event import encode
from broker_core.trace.filter import compile_filter
from broker_core.trace.ring import Numbered, Ring

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from broker_core.trace.event import TraceEvent, WatchedEvent
    from broker_core.trace.filter import Properties, TraceWatch
    from broker_core.trace.ring import Stretch

    Push = Callable[[bytes], bool]
    TopicCheck = Callable[[str], bool]
    """Whether a watcher may currently read a topic."""

RING_EVENTS = 20_000
"""Events that a watch keeps: waiting ones, and sent ones for a watcher that reconnects."""
BATCH_EVENTS_MAX = 2_000
"""Events in one push; together with PUSH_SECONDS this limits the events per second."""
FRESH_MAX = 1_000
"""Maximum matched events that are numbered together, in the next push or earlier."""
PRIVATE_TOPIC = RMQ_SYS_TRANS_HALF_TOPIC
"""The topic checked for an event without one: no default permission includes it."""


class Watcher(NamedTuple):
    """The receiver of a watch's events."""

    push: Push
    """Send an encoded batch and return whether the peer keeps up."""
    host: str = ""
    owner: str | None = None
    """The account, or None for a watch without an account."""
    may_see: TopicCheck | None = None
    """None allows everything."""


class Watch:
    """Numbers the events that its filters match. Event loop only.

    A watch outlives its connection for a while: a watcher that reconnects is sent the events
    still in the ring.

    Attributes:
        watch_id: the watch's name.
        host: the watcher's host.
        owner: the watcher's account, or None.
        wanted: the requested filters.
        lost_at: when the connection was lost, by the monotonic clock.
        fresh: events that match the only filter and will be numbered later. The native turn adds
            to them and respects FRESH_MAX; if `is_up_to_date`, it calls `wake` first.
        is_up_to_date: whether the watcher has everything that exists.
    """

    __slots__ = (
        "_emit_noted",
        "_heads",
        "_last_seq",
        "_matchers",
        "_may_see",
        "_names",
        "_numbered",
        "_offered",
        "_on_news",
        "_push",
        "_pushed_seq",
        "_rate_max",
        "_ring",
        "_second",
        "_seen",
        "_sent_count",
        "_this_second",
        "fresh",
        "host",
        "is_up_to_date",
        "lost_at",
        "owner",
        "wanted",
        "watch_id",
    )

    def __init__(
        self,
        watch_id: str,
        wanted: TraceWatch,
        watcher: Watcher,
        numbered_type: Callable[[int, bytes, list[WatchedEvent]], Stretch] = Numbered,
        on_news: Callable[[], None] | None = None,
        emit_noted: Callable[[], None] = lambda: None,
    ) -> None:
        """Create a watch; `on_news` is called when there is something to send.

        For `emit_noted` see `Tracer.emit_noted`.
        """
        self.watch_id = watch_id
        self.wanted = structs.replace(wanted, resume=None)
        self.host = watcher.host
        self.owner = watcher.owner
        self.lost_at = 0.0
        self.is_up_to_date = True
        self._on_news = on_news
        self._emit_noted = emit_noted
        self.fresh: list[WatchedEvent] = []
        self._push: Push | None = watcher.push
        self._matchers = [(name, *compile_filter(each)) for name, each in wanted.named().items()]
        self._names = tuple(wanted.named())
        self._may_see = watcher.may_see
        self._seen: dict[str, bool] = {}
        self._heads: dict[tuple[str, ...], bytes] = {}
        self._last_seq = 0
        self._pushed_seq = 0
        self._sent_count = 0
        self._numbered = numbered_type
        self._ring = Ring(RING_EVENTS, numbered_type)
        self._offered: Counter[str] = Counter()
        self._rate_max = wanted.events_per_second_max
        self._second = -1
        self._this_second = 0

    @property
    def dropped(self) -> int:
        """Number of events that will never be sent."""
        return self._last_seq - self._sent_count - self._ring.waiting

    def offer(
        self, emitted: WatchedEvent, event: TraceEvent, properties: Properties, at_s: float
    ) -> bool:
        """Add an event if a filter matches; return whether a filter matches its message."""
        self.number_fresh()
        is_about = False
        matched = []
        for name, message, here in self._matchers:
            if message(event, properties):
                is_about = True
                if here(event, properties):
                    matched.append(name)
        if matched and (self._may_see is None or self._can_see(emitted)):
            self._count(emitted.stage)
            if self._rate_max is None or self._has_room(at_s):
                self._ring.add(self._last_seq, self._head(tuple(matched)), emitted)
        return is_about

    def lose(self, stage: str) -> None:
        """Count a matching event that wasn't kept."""
        self.number_fresh()
        self._count(stage)

    def wake(self) -> None:
        """Note that there is something to send and schedule a push."""
        self.is_up_to_date = False
        if self._on_news is not None:
            self._on_news()

    def number_fresh(self) -> None:
        """Number all fresh events together, which costs little per event."""
        self._emit_noted()
        fresh = self.fresh
        if not fresh:
            return
        # Later events need a new list, because this one is kept.
        self.fresh = []
        if self._may_see is not None:
            fresh = [each for each in fresh if self._can_see(each)]
        (name,) = self._names
        numbered = self._numbered(self._last_seq + 1, self._head((name,)), fresh)
        self._last_seq += len(fresh)
        offered = self._offered
        for stage, count in numbered.stages().items():
            offered[stage] += count
        self._ring.extend(numbered)

    def send(self) -> None:
        """Push a batch if there is something new and the peer reads."""
        self.number_fresh()
        self._seen.clear()
        ring = self._ring
        if self._push is None:
            return
        if self._pushed_seq == self._last_seq and not ring.waiting:
            self.is_up_to_date = True
            return
        batch, batch_count = ring.batch(BATCH_EVENTS_MAX)
        pushed_seq = self._last_seq
        if batch_count < ring.waiting:
            pushed_seq = batch[-1].first + len(batch[-1].events) - 1
        body, shown_count = self._shown(batch, batch_count)
        if not self._push(body):
            return
        ring.sent(batch, body, shown_count)
        self._sent_count += shown_count
        self._pushed_seq = pushed_seq
        self.is_up_to_date = pushed_seq == self._last_seq and not ring.waiting

    def _shown(self, batch: Sequence[Stretch], batch_count: int) -> tuple[bytes, int]:
        """Return the events of a batch that the watcher may see as text, and their number.

        Events that can't be encoded are dropped, because they would block all later events.
        """
        with isolated("encoding trace events", self.watch_id):
            shown, shown_count = batch, batch_count
            if self._may_see is not None:
                shown = [part for each in batch for part in self._visible_parts(each)]
                shown_count = sum(len(each.events) for each in shown)
            return self._body(shown, self.dropped + batch_count - shown_count), shown_count
        return self._body((), self.dropped + batch_count), 0

    def fold(self) -> None:
        """Convert the waiting events of a disconnected watcher to text, a third of the memory."""
        self.number_fresh()
        batch, count = self._ring.batch(BATCH_EVENTS_MAX)
        if count:
            self._ring.sent(batch, self._body(batch, 0), count)
            self._sent_count += count

    def lose_connection(self, now_s: float) -> None:
        """Keep new events until the watcher reconnects."""
        self._push = None
        self.lost_at = now_s

    def resume(self, watcher: Watcher, last_seq: int, received: int) -> None:
        """Continue after the last event that reached the watcher, given the number received."""
        self.number_fresh()
        self.host = watcher.host
        self._push = watcher.push
        self._may_see = watcher.may_see
        self._seen.clear()
        self._ring.rewind(last_seq)
        self._sent_count = min(received, self._last_seq - self._ring.waiting)
        self._pushed_seq = -1
        self.wake()

    def _count(self, stage: str) -> None:
        if self.is_up_to_date:
            self.wake()
        self._last_seq += 1
        self._offered[stage] += 1

    def _has_room(self, at_s: float) -> bool:
        """Count an event of this second; return whether the rate limit allows it."""
        assert self._rate_max is not None
        if self._second != int(at_s):
            self._second = int(at_s)
            self._this_second = 0
        self._this_second += 1
        return self._this_second <= self._rate_max

    def _can_see(self, emitted: WatchedEvent) -> bool:
        """Return whether the watcher may see an event; checked once per push and topic."""
        assert self._may_see is not None
        topic = topic_to_read(emitted.topic, emitted.group)
        seen = self._seen.get(topic)
        if seen is None:
            seen = self._seen[topic] = self._may_see(topic)
        return seen

    def _visible_parts(self, stretch: Stretch) -> Iterator[Stretch]:
        """Yield the parts of a stretch that the watcher may see."""
        first = stretch.first
        for is_seen, some in itertools.groupby(stretch.events, self._can_see):
            events = list(some)
            if is_seen:
                yield self._numbered(first, stretch.head, events)
            first += len(events)

    def _head(self, matched: tuple[str, ...]) -> bytes:
        """Return the start of an event with these filter names, after its number."""
        head = self._heads.get(matched)
        if head is None:
            names = b"" if matched == ("",) else b'"matched":' + encode(matched) + b","
            head = self._heads[matched] = b'",' + names
        return head

    def _body(self, events: Sequence[Stretch], dropped: int) -> bytes:
        """Return a batch as the body of TRACE_EVENTS."""
        offered = {stage: str(count) for stage, count in self._offered.items()}
        counts = {
            "watchId": self.watch_id,
            "dropped": str(dropped),
            "lastSeq": str(self._last_seq),
            "offered": offered,
        }
        before, behind = encode(counts)[:-1] + b',"events":[', b"]}"
        if len(events) == 1:
            # The usual case, which saves a large copy.
            return events[0].body(before, behind)
        return b"%b%b%b" % (before, b",".join([each.body() for each in events]), behind)


def topic_to_read(topic: str, group: str | None) -> str:
    """Return the topic whose read permission an event requires."""
    return topic or (retry_topic(group) if group else PRIVATE_TOPIC)
