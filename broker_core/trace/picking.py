"""Picking: which plain sends of a topic anybody wants, so that the others cost nothing."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING
from zlib import crc32

from broker_core.trace.filter import topic_test

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker_core.trace.filter import TraceFilter

TOPICS_MAX = 100_000
NONE, ALL = 0, 1


class Picking:
    """Event loop only. The native turn looks at both attributes.

    Attributes:
        is_on: whether anything may be wanted.
        one_of: by topic, one of how many messages is wanted at most: NONE, ALL or the common sample
            of all filters that may match the topic. Asked by the hash of messages' unique keys.
    """

    def __init__(self) -> None:
        self.is_on = False
        self.one_of: dict[str, int] = {}

    def take(self, filters: Sequence[TraceFilter], *, is_full: bool) -> None:
        """Want what these filters want, or everything."""
        self.is_on = is_full or bool(filters)
        rules = [(_topic_test_of(each), each.sample) for each in filters]
        self.one_of = _OneOf(rules, is_full=is_full)

    def wants(self, topic: str, uniq_key: str | None) -> bool:
        """Return whether anybody may want to see a message with this key."""
        one_of = self.one_of[topic]
        if one_of <= ALL or uniq_key is None:
            return one_of != NONE
        return crc32(uniq_key.encode()) % one_of == 0


class _OneOf(defaultdict[str, int]):
    """Looks a topic up among the filters once."""

    def __init__(self, rules: list[tuple[Callable[[str], bool], int]], *, is_full: bool) -> None:
        super().__init__()
        self._rules = rules
        self._is_full = is_full

    def __missing__(self, topic: str) -> int:
        samples = {sample for may_match, sample in self._rules if may_match(topic)}
        found = ALL if self._is_full or len(samples) > 1 else samples.pop() if samples else NONE
        if len(self) >= TOPICS_MAX:
            self.clear()
        self[topic] = found
        return found


def _topic_test_of(wanted: TraceFilter) -> Callable[[str], bool]:
    if wanted.message is not None or not wanted.topic:
        # Copies of the message that is asked for may be in any topic.
        return lambda topic: True
    return topic_test(wanted.topic)
