"""Takers: watches to which the native turn hands events that it has encoded itself.

For this a watch must have one filter that asks for nothing but a sample, topics, a group and
stages: the turn knows all of them before there is an event, which nothing is held against then.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from msgspec import structs

from broker_core.trace.filter import STEPS, TraceFilter
from broker_core.trace.picking import ALL, TOPICS_MAX, Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker_core.trace.watch import Watch

    _Asked = tuple[Watch, Rule, bool]
    """A watch, one of its filters, and whether that is known without an event."""

KNOWN = frozenset({"topic", "group", "sample", "stages"})
K = TypeVar("K")
V = TypeVar("V")


class ToldOfPulls(NamedTuple):
    """Who is told of a reader's messages by the native turn; they have the same sample."""

    delivered: tuple[Watch, ...]
    acknowledged: tuple[Watch, ...]


class ToldOfPuts(NamedTuple):
    """Who is told of a topic's messages by the native turn; they have the same sample."""

    stored: tuple[Watch, ...]
    flushed: tuple[Watch, ...]
    replicated: tuple[Watch, ...]


class Takers:
    """Who is told without filters; None where events must be held against them. Event loop only.

    Attributes:
        of_pulls: by topic and group.
        of_puts: by topic.
    """

    def __init__(self, watches: Sequence[Watch] = (), *, is_full: bool = False) -> None:
        self.of_pulls: _Found[tuple[str, str], ToldOfPulls] = _Found(self._of_pulls)
        self.of_puts: _Found[str, ToldOfPuts] = _Found(self._of_puts)
        self._is_full = is_full
        self._rules = [
            (watch, Rule(each), _is_plain(watch, each))
            for watch in watches
            for each in watch.wanted.named().values()
        ]

    def _of_pulls(self, reader: tuple[str, str]) -> ToldOfPulls | None:
        asked = [each for each in self._rules if each[1].may_match_pull(*reader)]
        if not self._is_known(asked):
            return None
        return ToldOfPulls(_of({"delivered"}, asked), _of({"acknowledged"}, asked))

    def _of_puts(self, topic: str) -> ToldOfPuts | None:
        asked = [each for each in self._rules if each[1].fits(topic)]
        # Who produces is known by the message alone.
        if not self._is_known(asked) or any(rule.group for _, rule, _ in asked):
            return None
        stored = _of({"stored", *STEPS}, asked)
        return ToldOfPuts(stored, _of({"flushed"}, asked), _of({"replicated"}, asked))

    def _is_known(self, asked: Sequence[_Asked]) -> bool:
        """Tell whether what these want is known without an event."""
        samples = {rule.sample for _, rule, _ in asked}
        return (
            not self._is_full
            and all(is_plain for _, _, is_plain in asked)
            and len(samples) == 1
            and samples != {ALL}
        )


class _Found(defaultdict[K, V | None], Generic[K, V]):
    """Looks up once."""

    def __init__(self, find: Callable[[K], V | None]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, key: K) -> V | None:
        if len(self) >= TOPICS_MAX:
            self.clear()
        found = self[key] = self._find(key)
        return found


def _of(stages: set[str], asked: Sequence[_Asked]) -> tuple[Watch, ...]:
    return tuple(watch for watch, rule, _ in asked if not stages.isdisjoint(rule.stages))


def _is_plain(watch: Watch, wanted: TraceFilter) -> bool:
    """Tell whether a watch has one filter, of what is known without an event, and no rate cap."""
    whole = watch.wanted
    if len(whole.named()) != 1 or whole.events_per_second_max is not None:
        return False
    nothing = TraceFilter()
    return all(
        getattr(wanted, name) == getattr(nothing, name)
        for name in (field.name for field in structs.fields(TraceFilter))
        if name not in KNOWN
    )
