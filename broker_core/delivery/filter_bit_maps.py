"""Compute which registered filters a message matches.

The bitmap is computed once, when the message is dispatched, and stored in its ConsumeQueue's
extension. Pulls skip messages that don't match without reading their records.

Source: broker/filter/CommitLogDispatcherCalcBitMap.java (4.9.7).
Differs: a topic with too many filters to evaluate for each message has no bitmaps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker_core.message import properties as message_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from broker_core.delivery.sql92.expression import Expression

COMPARISONS_MAX = 2000
"""Comparisons in the filters of a topic; this many take about a millisecond per message."""


class RegisteredFilter(Protocol):
    """A filter that a consumer group has registered."""

    @property
    def expression(self) -> Expression:
        """The expression that the group subscribes with."""
        ...

    @property
    def bit_map(self) -> bytes:
        """A bitmap with this filter's bits only."""
        ...


class FilterBitMaps:
    """Computes bitmaps with the filters that `filters_of` returns for a topic. Event loop only.

    Filters of offline groups are included, because a returning group relies on the bitmaps computed
    in the meantime.
    """

    def __init__(
        self,
        filters_of: Callable[[str], Collection[RegisteredFilter]],
        is_enabled: Callable[[], bool],
    ) -> None:
        self._filters_of = filters_of
        self._is_enabled = is_enabled

    def bit_map(self, topic: str, properties: str) -> bytes:
        """Return the bitmap of a message; empty if no group filters its topic."""
        filters = self._filters_of(topic)
        if not filters or not self._is_enabled():
            return b""
        get = message_properties.decode(properties).get
        bits = size = comparisons = 0
        for one in filters:
            comparisons += one.expression.comparisons
            if comparisons > COMPARISONS_MAX:
                return b""
            size = len(one.bit_map)
            if one.expression.matches(get):
                bits |= int.from_bytes(one.bit_map, "big")
        return bits.to_bytes(size, "big")
