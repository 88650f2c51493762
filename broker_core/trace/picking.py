"""Picking: which plain sends and pulls anybody wants, so that the others cost nothing."""

from __future__ import annotations

from collections import defaultdict
from math import gcd
from typing import TYPE_CHECKING, Any
from zlib import crc32

from broker_core.trace.filter import stages_of, topic_test

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker_core.trace.filter import TraceFilter

TOPICS_MAX = 100_000
NONE, ALL = 0, 1
PULL_STAGES = frozenset({"woken", "filtered", "delivered", "acknowledged"})
"""What a pull, and the offset that it commits, may be told of as."""


class Picking:
    """Event loop only. The native turn looks at all attributes.

    A number says that one of so many messages is wanted at most: NONE, ALL, or a sample that covers
    those of all filters that may match. It is asked by the hash of messages' unique keys.

    Attributes:
        is_on: whether anything may be wanted.
        one_of: the number by topic.
        pulls: the number of what pulls are answered with and acknowledge, by topic and group.
        picked: what the native turn notes, by queue, of the messages that it puts: which of them a
            sample wants. Another watch makes it void.
    """

    __slots__ = ("is_on", "one_of", "picked", "pulls")

    def __init__(self) -> None:
        self.take((), is_full=False)

    def take(self, filters: Sequence[TraceFilter], *, is_full: bool) -> None:
        """Want what these filters want, or everything."""
        self.is_on = is_full or bool(filters)
        rules = [Rule(each) for each in filters]
        self.one_of = _OneOf(rules, is_full=is_full)
        self.pulls = _OneOfPulls(rules, is_full=is_full)
        self.picked: dict[Any, Any] = {}

    def wants(self, topic: str, uniq_key: str | None) -> bool:
        """Return whether anybody may want to see a message with this key."""
        return _is_picked(self.one_of[topic], uniq_key)

    def wants_of_pulls(self, topic: str, group: str, uniq_key: str | None) -> bool:
        """Return whether anybody may want to see a group being handed a message with this key."""
        return _is_picked(self.pulls[topic, group], uniq_key)


class Rule:
    """What a filter asks of topics, groups, stages and samples."""

    def __init__(self, wanted: TraceFilter) -> None:
        self.fits = _topic_test_of(wanted)
        self.sample = wanted.sample
        self.stages = stages_of(wanted)
        self.is_of_pulls = not PULL_STAGES.isdisjoint(self.stages)
        self.group = wanted.group

    def may_match_pull(self, topic: str, group: str) -> bool:
        """Return whether what a group is handed of a topic, or acknowledges, may match."""
        return self.is_of_pulls and self.group in (None, "", group) and self.fits(topic)


class _OneOf(defaultdict[str, int]):
    """Looks a topic up among the filters once."""

    def __init__(self, rules: Sequence[Rule], *, is_full: bool) -> None:
        super().__init__()
        self._rules = rules
        self._is_full = is_full

    def __missing__(self, topic: str) -> int:
        samples = [rule.sample for rule in self._rules if rule.fits(topic)]
        if len(self) >= TOPICS_MAX:
            self.clear()
        found = self[topic] = ALL if self._is_full else _common(samples)
        return found


class _OneOfPulls(defaultdict[tuple[str, str], int]):
    """Looks a topic and a group up among the filters once."""

    def __init__(self, rules: Sequence[Rule], *, is_full: bool) -> None:
        super().__init__()
        self._rules = rules
        self._is_full = is_full

    def __missing__(self, reader: tuple[str, str]) -> int:
        topic, group = reader
        samples = [rule.sample for rule in self._rules if rule.may_match_pull(topic, group)]
        if len(self) >= TOPICS_MAX:
            self.clear()
        found = self[reader] = ALL if self._is_full else _common(samples)
        return found


def _common(samples: Sequence[int]) -> int:
    """Return a sample that covers all of these; NONE for none.

    What one of 10 and one of 100 want is among what one of their common divisor wants.
    """
    return gcd(*samples)


def _is_picked(one_of: int, uniq_key: str | None) -> bool:
    if one_of <= ALL or uniq_key is None:
        return one_of != NONE
    return crc32(uniq_key.encode()) % one_of == 0


def _topic_test_of(wanted: TraceFilter) -> Callable[[str], bool]:
    if wanted.message is not None or not wanted.topic:
        # Copies of the message that is asked for may be in any topic.
        return lambda topic: True
    return topic_test(wanted.topic)
