"""The filters of consumer groups that subscribe by expression, kept in consumerFilter.json.

A filter outlives its group by a day: a group that comes back finds it, and the bitmaps that were
made for it still hold.

Source: broker/filter/ConsumerFilterManager.java, ConsumerFilterData.java (4.9.7).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from broker_core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from broker_core.clock import Clock
    from broker_core.formats.bloom_filter import BloomFilter
    from broker_core.message.subscription import SubscriptionData
    from broker_core.metadata.document import Document

logger = logging.getLogger(__name__)

E = TypeVar("E")

FILTER_NUMS_MAX = 100_000
DEAD_AT_LOAD_MS = 30_000
"""A start takes every group for gone since then, until its first heartbeat."""


class BloomFilterData(msgspec.Struct, rename="camel", kw_only=True):
    """Where a filter's bits are in a bitmap."""

    bit_num: int = 0
    bit_pos: list[int] = []


class StoredFilter(msgspec.Struct, rename="camel", kw_only=True):
    """A filter as the file holds it; times are milliseconds since epoch."""

    bloom_filter_data: BloomFilterData | None = None
    born_time: int = 0
    client_version: int = 0
    consumer_group: str
    dead: bool = False
    dead_time: int = 0
    expression: str
    expression_type: str
    topic: str


class TopicFilters(msgspec.Struct, rename="camel", kw_only=True):
    """The filters of one topic by group, as the file holds them."""

    group_filter_data: dict[str, StoredFilter] = {}
    topic: str = ""


@dataclass(slots=True)
class ConsumerFilter(Generic[E]):
    """What a group wants of a topic, compiled."""

    consumer_group: str
    topic: str
    expression_type: str
    text: str
    expression: E
    client_version: int
    """The subscription's version: the client's clock when it subscribed."""
    born_time: int
    bit_pos: list[int]
    bit_map: bytes
    """A bitmap with the bits of bit_pos only."""
    dead_time: int = 0

    @property
    def is_dead(self) -> bool:
        """Whether the group, or its subscription to this topic, is gone."""
        return self.dead_time >= self.born_time


class ConsumerFilters(Generic[E]):
    """Register, find and forget filters. Event loop only.

    `compile_expression` takes an expression's type and text, and raises ValueError for one that
    is none.

    Attributes:
        newest_stored_ms: asked for the latest store timestamp there is. A filter is not older than
            that, whatever the wall clock says: messages before it have bitmaps without it.
    """

    def __init__(
        self,
        compile_expression: Callable[[str, str], E],
        bloom: BloomFilter,
        clean_time_span_ms: Callable[[], int],
        clock: Clock,
        document: Document,
    ) -> None:
        self.newest_stored_ms: Callable[[], int] = _nothing_stored
        self._compile = compile_expression
        self._bloom = bloom
        self._clean_time_span_ms = clean_time_span_ms
        self._clock = clock
        self._document = document
        self._table: dict[str, dict[str, ConsumerFilter[E]]] = {}
        self._dirty = False

    def load(self) -> None:
        """Read the file; filters that no longer compile are left out.

        Raises:
            StoreError: the file holds no filters.
        """
        document = self._document.load() or {}
        try:
            stored = msgspec.convert(
                document.get("filterDataByTopic") or {}, dict[str, TopicFilters], strict=False
            )
        except msgspec.ValidationError as error:
            raise StoreError(f"{self._document.path}: {error}") from error
        filters = [one for topic in stored.values() for one in topic.group_filter_data.values()]
        if not all(self._has_our_bits(one.bloom_filter_data) for one in filters):
            # As the original: bitmaps in the files were made with other bits.
            logger.warning("%s is not used: its bitmaps have another size", self._document.path)
            return
        dead_time = self._clock.now_ms() - DEAD_AT_LOAD_MS
        for one in filters:
            try:
                expression = self._compile(one.expression_type, one.expression)
            except ValueError as error:
                logger.warning(
                    "consumer filter left out: group=%s topic=%s reason=%s",
                    one.consumer_group,
                    one.topic,
                    error,
                )
                continue
            self._add(
                one.consumer_group,
                one.topic,
                one.expression_type,
                one.expression,
                expression,
                one.client_version,
                one.born_time,
            ).dead_time = one.dead_time or max(one.born_time, dead_time)

    def find(self, topic: str, group: str) -> ConsumerFilter[E] | None:
        """Return a group's filter on a topic, dead or not."""
        filters = self._table.get(topic)
        return None if filters is None else filters.get(group)

    def of_topic(self, topic: str) -> Collection[ConsumerFilter[E]]:
        """Return the filters on a topic, dead or not."""
        filters = self._table.get(topic)
        return () if filters is None else filters.values()

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Take what a heartbeat says that a group wants; its other filters are dead then."""
        topics = set()
        for subscription in subscriptions:
            topics.add(subscription.topic)
            if not subscription.is_tag_expression and subscription.sub_string:
                self._register(group, subscription)
        for known in self._of_group(group):
            if known.topic not in topics and not known.is_dead:
                self._bury(known)

    def unregister(self, group: str) -> None:
        """Note that a group has no member any more."""
        for known in self._of_group(group):
            if not known.is_dead:
                self._bury(known)

    def persist(self) -> None:
        """Forget what is dead for too long; write the file if anything changed since the last."""
        self._clean()
        if self._dirty:
            self._document.save(self.document())
            self._dirty = False

    def text(self, one: ConsumerFilter[E] | None) -> str:
        """Return a filter as the file would hold it, "null" for none."""
        if one is None:
            return "null"
        return self._document.text(msgspec.to_builtins(self._stored(one))).decode()

    def document(self) -> dict[str, Any]:
        """Return all filters in the file's shape."""
        return {
            "filterDataByTopic": {
                topic: {
                    "groupFilterData": {
                        group: msgspec.to_builtins(self._stored(one))
                        for group, one in filters.items()
                    },
                    "topic": topic,
                }
                for topic, filters in self._table.items()
            }
        }

    def _register(self, group: str, subscription: SubscriptionData) -> None:
        topic, version = subscription.topic, subscription.sub_version
        old = self.find(topic, group)
        if old is not None and version <= old.client_version:
            if version == old.client_version and old.is_dead:
                self._revive(old)
            return
        is_same = (
            old is not None
            and old.text == subscription.sub_string
            and old.expression_type == subscription.expression_type
        )
        if old is not None and is_same:
            old.client_version = version
            self._dirty = True
            if old.is_dead:
                self._revive(old)
            return
        if old is None and self._count() >= FILTER_NUMS_MAX:
            logger.warning("consumer filter not registered: there are %d", FILTER_NUMS_MAX)
            return
        try:
            expression = self._compile(subscription.expression_type, subscription.sub_string)
        except ValueError as error:
            # Its pulls are told that there is no filter; the client asked before it started.
            logger.warning(
                "consumer filter not registered: group=%s topic=%s reason=%s", group, topic, error
            )
            if old is not None:
                self._remove(old)
            return
        self._add(
            group,
            topic,
            subscription.expression_type,
            subscription.sub_string,
            expression,
            version,
            max(self._clock.now_ms(), self.newest_stored_ms()),
        )
        self._dirty = True
        logger.info("consumer filter registered: group=%s topic=%s", group, topic)

    def _add(
        self,
        group: str,
        topic: str,
        expression_type: str,
        text: str,
        expression: E,
        client_version: int,
        born_time: int,
    ) -> ConsumerFilter[E]:
        positions = self._bloom.positions(group, topic)
        one = ConsumerFilter(
            group,
            topic,
            expression_type,
            text,
            expression,
            client_version,
            born_time,
            positions,
            self._bloom.bit_map(positions),
        )
        self._table.setdefault(topic, {})[group] = one
        return one

    def _revive(self, one: ConsumerFilter[E]) -> None:
        one.dead_time = 0
        self._dirty = True

    def _bury(self, one: ConsumerFilter[E]) -> None:
        one.dead_time = max(self._clock.now_ms(), one.born_time)
        self._dirty = True

    def _clean(self) -> None:
        now_ms = self._clock.now_ms()
        for filters in list(self._table.values()):
            for one in list(filters.values()):
                if one.is_dead and now_ms - one.dead_time >= self._clean_time_span_ms():
                    self._remove(one)

    def _remove(self, one: ConsumerFilter[E]) -> None:
        filters = self._table[one.topic]
        del filters[one.consumer_group]
        if not filters:
            del self._table[one.topic]
        self._dirty = True

    def _of_group(self, group: str) -> Iterator[ConsumerFilter[E]]:
        for filters in self._table.values():
            found = filters.get(group)
            if found is not None:
                yield found

    def _count(self) -> int:
        return sum(map(len, self._table.values()))

    def _stored(self, one: ConsumerFilter[E]) -> StoredFilter:
        return StoredFilter(
            bloom_filter_data=BloomFilterData(bit_num=self._bloom.bit_num, bit_pos=one.bit_pos),
            born_time=one.born_time,
            client_version=one.client_version,
            consumer_group=one.consumer_group,
            dead=one.is_dead,
            dead_time=one.dead_time,
            expression=one.text,
            expression_type=one.expression_type,
            topic=one.topic,
        )

    def _has_our_bits(self, data: BloomFilterData | None) -> bool:
        return (
            data is not None
            and data.bit_num == self._bloom.bit_num
            and len(data.bit_pos) == self._bloom.hash_num
        )


def _nothing_stored() -> int:
    return 0
