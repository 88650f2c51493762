"""Select the plain sends and pulls that are watched, so that all others cost nothing."""

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
"""Stages that a pull, or the offset it commits, can produce."""


class EventSelection:
    """The combined selection of all filters. Event loop only; the native turn reads all attributes.

    A number n selects one in n messages by the hash of their unique keys: NONE, ALL, or a sample
    that includes the samples of all filters that may match.

    Attributes:
        is_on: whether any event may be wanted.
        sends: the number, by topic.
        pulls: the number for delivered and acknowledged messages, by topic and group.
        sample_cache: the stored messages that the native turn has found in a sample, by queue.
            A new watch clears it.
    """

    __slots__ = ("is_on", "pulls", "sample_cache", "sends")

    def __init__(self) -> None:
        self.take((), is_full=False)

    def take(self, filters: Sequence[TraceFilter], *, is_full: bool) -> None:
        """Select the messages that these filters may match, or every message."""
        self.is_on = is_full or bool(filters)
        rules = [Rule(each) for each in filters]
        self.sends = _SampleOfTopic(rules, is_full=is_full)
        self.pulls = _SampleOfReader(rules, is_full=is_full)
        self.sample_cache: dict[Any, Any] = {}

    def wants(self, topic: str, uniq_key: str | None) -> bool:
        """Return whether any watcher may want a message with this key."""
        return _is_in_sample(self.sends[topic], uniq_key)

    def wants_of_pulls(self, topic: str, group: str, uniq_key: str | None) -> bool:
        """Return whether any watcher may want the delivery of this message to a group."""
        return _is_in_sample(self.pulls[topic, group], uniq_key)


class Rule:
    """The conditions of a filter on topics, groups, stages and samples."""

    def __init__(self, wanted: TraceFilter) -> None:
        self.fits = _topic_test_of(wanted)
        self.sample = wanted.sample
        self.stages = stages_of(wanted)
        self.is_of_pulls = not PULL_STAGES.isdisjoint(self.stages)
        self.group = wanted.group

    def may_match_pull(self, topic: str, group: str) -> bool:
        """Return whether a delivery or acknowledgement of a topic by a group may match."""
        return self.is_of_pulls and self.group in (None, "", group) and self.fits(topic)


class _SampleOfTopic(defaultdict[str, int]):
    """Caches the number of each topic."""

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


class _SampleOfReader(defaultdict[tuple[str, str], int]):
    """Caches the number of each topic and group."""

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
    """Return a sample that includes all of these; NONE if there are no samples.

    Samples of one in 10 and one in 100 are both included in the sample of their common divisor.
    """
    return gcd(*samples)


def _is_in_sample(sample: int, uniq_key: str | None) -> bool:
    if sample <= ALL or uniq_key is None:
        return sample != NONE
    return crc32(uniq_key.encode()) % sample == 0


def _topic_test_of(wanted: TraceFilter) -> Callable[[str], bool]:
    if wanted.message is not None or not wanted.topic:
        # Copies of the requested message may be in any topic.
        return lambda topic: True
    return topic_test(wanted.topic)
