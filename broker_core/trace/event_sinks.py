"""Find the watches to which the native turn can send encoded events directly.

Such a watch has one filter, limited to a sample, topics, a group and stages. The native turn has
all of these before it creates an event, so it needs no further matching.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from msgspec import structs

from broker_core.trace.filter import STEPS, TraceFilter
from broker_core.trace.selection import ALL, TOPICS_MAX, Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker_core.trace.watch import Watch

    _WatchRule = tuple[Watch, Rule, bool]
    """A watch, one of its filters, and whether the native turn can decide a match without an event.
    """

KNOWN = frozenset({"topic", "group", "sample", "stages"})
K = TypeVar("K")
V = TypeVar("V")


class PullSinks(NamedTuple):
    """Watches that receive a reader's messages from the native turn; they share one sample."""

    delivered: tuple[Watch, ...]
    acknowledged: tuple[Watch, ...]


class PutSinks(NamedTuple):
    """Watches that receive a topic's messages from the native turn; they share one sample."""

    stored: tuple[Watch, ...]
    flushed: tuple[Watch, ...]
    replicated: tuple[Watch, ...]


class EventSinks:
    """The watches that need no filtering, or None where events must be filtered. Event loop only.

    Attributes:
        of_pulls: by topic and group.
        of_puts: by topic.
    """

    def __init__(self, watches: Sequence[Watch] = (), *, is_full: bool = False) -> None:
        self.of_pulls: _Cache[tuple[str, str], PullSinks] = _Cache(self._of_pulls)
        self.of_puts: _Cache[str, PutSinks] = _Cache(self._of_puts)
        self._is_full = is_full
        self._rules = [
            (watch, Rule(each), _is_plain(watch, each))
            for watch in watches
            for each in watch.wanted.named().values()
        ]

    def _of_pulls(self, reader: tuple[str, str]) -> PullSinks | None:
        asked = [each for each in self._rules if each[1].may_match_pull(*reader)]
        if not self._is_known(asked):
            return None
        return PullSinks(_of({"delivered"}, asked), _of({"acknowledged"}, asked))

    def _of_puts(self, topic: str) -> PutSinks | None:
        asked = [each for each in self._rules if each[1].fits(topic)]
        # The producer group is only available in the message.
        if not self._is_known(asked) or any(rule.group for _, rule, _ in asked):
            return None
        stored = _of({"stored", *STEPS}, asked)
        return PutSinks(stored, _of({"flushed"}, asked), _of({"replicated"}, asked))

    def _is_known(self, asked: Sequence[_WatchRule]) -> bool:
        """Return whether every match can be decided without an event."""
        samples = {rule.sample for _, rule, _ in asked}
        return (
            not self._is_full
            and all(is_plain for _, _, is_plain in asked)
            and len(samples) == 1
            and samples != {ALL}
        )


class _Cache(defaultdict[K, V | None], Generic[K, V]):
    """A lookup cache."""

    def __init__(self, find: Callable[[K], V | None]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, key: K) -> V | None:
        if len(self) >= TOPICS_MAX:
            self.clear()
        found = self[key] = self._find(key)
        return found


def _of(stages: set[str], asked: Sequence[_WatchRule]) -> tuple[Watch, ...]:
    return tuple(watch for watch, rule, _ in asked if not stages.isdisjoint(rule.stages))


def _is_plain(watch: Watch, wanted: TraceFilter) -> bool:
    """Return whether a watch has one filter that needs no event, and no rate limit."""
    whole = watch.wanted
    if len(whole.named()) != 1 or whole.events_per_second_max is not None:
        return False
    nothing = TraceFilter()
    return all(
        getattr(wanted, name) == getattr(nothing, name)
        for name in (field.name for field in structs.fields(TraceFilter))
        if name not in KNOWN
    )
