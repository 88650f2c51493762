"""The filters of consumer groups that subscribe by expression, stored in consumerFilter.json.

A filter outlives its group by a day: a group that reconnects finds its filter, and the bitmaps
built with it are still valid.

Source: broker/filter/ConsumerFilterManager.java, ConsumerFilterData.java (4.9.7).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from broker_core.config.limits import LIMITS
from broker_core.errors import StoreError
from broker_core.steps import run_to_end

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Mapping

    from broker_core.clock import Clock
    from broker_core.config.limits import LimitsConfig
    from broker_core.formats.bloom_filter import BloomFilter
    from broker_core.message.subscription import SubscriptionData
    from broker_core.metadata.document import Document

logger = logging.getLogger(__name__)

E = TypeVar("E")

CHARS_PER_FILTER = 256
"""This many characters of an expression use about as much memory as a filter without one."""
DEAD_AT_LOAD_MS = 30_000
"""After a start, every group counts as offline for this long, until its first heartbeat."""


class BloomFilterData(msgspec.Struct, rename="camel", kw_only=True):
    """The positions of a filter's bits in a bitmap of `bit_num` bits."""

    bit_num: int = 0
    bit_pos: list[int] = []


class StoredFilter(msgspec.Struct, rename="camel", kw_only=True):
    """A filter in the file's shape; times are milliseconds since epoch."""

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
    """The filters of one topic by group, in the file's shape."""

    group_filter_data: dict[str, StoredFilter] = {}
    topic: str = ""


@dataclass(slots=True)
class ConsumerFilter(Generic[E]):
    """A group's compiled subscription to a topic; times are milliseconds since epoch."""

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
    """A bitmap with only the bits of bit_pos set."""
    dead_time: int = 0

    @property
    def is_dead(self) -> bool:
        """Whether the group has left, or no longer subscribes to this topic."""
        return self.dead_time >= self.born_time


class ConsumerFilters(Generic[E]):
    """Registers, finds and forgets filters. Event loop only.

    `compile_expression` takes an expression's type and text; it raises ValueError if the text
    doesn't compile. `newest_stored_ms` returns the latest store timestamp. A new filter's birth
    time is never earlier, regardless of the wall clock: the bitmaps of messages stored before lack
    its bits.
    """

    def __init__(
        self,
        compile_expression: Callable[[str, str], E],
        bloom: BloomFilter,
        clean_time_span_ms: Callable[[], int],
        clock: Clock,
        document: Document,
        newest_stored_ms: Callable[[], int] = lambda: 0,
        limits: LimitsConfig = LIMITS,
    ) -> None:
        self._limits = limits
        self._newest_stored_ms = newest_stored_ms
        self._compile = compile_expression
        self._bloom = bloom
        self._clean_time_span_ms = clean_time_span_ms
        self._clock = clock
        self._document = document
        self._table: dict[str, dict[str, ConsumerFilter[E]]] = {}
        self._by_group: dict[str, dict[str, ConsumerFilter[E]]] = {}
        self._weight = 0
        self._dirty = False

    def load(self) -> None:
        """Read the file; skip filters that no longer compile.

        Raises:
            StoreError: the file isn't a table of filters.
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
            # As in RocketMQ: the stored bitmaps have different bits.
            logger.warning(
                "consumer filters ignored, bitmap size differs path=%s", self._document.path
            )
            return
        dead_time = self._clock.now_ms() - DEAD_AT_LOAD_MS
        for one in filters:
            try:
                expression = self._compile(one.expression_type, one.expression)
            except ValueError as error:
                logger.warning(
                    "consumer filter skipped group=%s topic=%s reason=%s",
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

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> int:
        """Register the subscriptions of a group's heartbeat; its other filters become dead.

        Returns how many filters are new.
        """
        return run_to_end(self.register_steps(group, subscriptions))

    def register_steps(
        self, group: str, subscriptions: Iterable[SubscriptionData]
    ) -> Generator[None, None, int]:
        """Register as `register` does; yield after compiling each filter."""
        topics = set()
        registered = 0
        for subscription in subscriptions:
            topics.add(subscription.topic)
            is_filter = not subscription.is_tag_expression and bool(subscription.sub_string)
            if is_filter and self._register(group, subscription):
                registered += 1
                yield
        for known in self._of_group(group):
            if known.topic not in topics and not known.is_dead:
                self._bury(known)
        return registered

    def unregister(self, group: str) -> None:
        """Mark the filters of a group dead, because its last consumer has left."""
        for known in self._of_group(group):
            if not known.is_dead:
                self._bury(known)

    def put(
        self,
        group: str,
        topic: str,
        expression_type: str,
        text: str,
        subscribed_version: int | None,
    ) -> None:
        """Set an administrator's expression in an existing or new filter.

        `subscribed_version` is the version of the group's subscription to the topic; None without a
        subscription: the filter is then dead. The filter keeps its version if that is greater, so
        that existing subscriptions of the group's consumers don't replace it, but later ones do.

        Raises:
            ValueError: the expression doesn't compile, or there are too many filters.
        """
        old = self.find(topic, group)
        expression = self._compile(expression_type, text)
        most = self._limits.consumer_filter_nums_max
        gone = 0 if old is None else _weight(old.text)
        if self._weight - gone + _weight(text) > most:
            raise ValueError(f"the limit of consumerFilterNumsMax={most} filters is reached")
        self._dirty = True
        version = max(0 if old is None else old.client_version, subscribed_version or 0)
        if old is not None and (old.expression_type, old.text) == (expression_type, text):
            old.client_version = version
            return
        new = self._add(
            group,
            topic,
            expression_type,
            text,
            expression,
            version,
            max(self._clock.now_ms(), self._newest_stored_ms()),
        )
        if subscribed_version is None:
            self._bury(new)

    def drop(self, group: str, topic: str) -> bool:
        """Forget a filter; return whether it existed."""
        found = self.find(topic, group)
        if found is not None:
            self._remove(found)
        return found is not None

    def follow(self, topics: Mapping[str, TopicFilters]) -> None:
        """Copy the master's filters that are newer than this broker's, or missing here.

        A filter with the same version but another expression was changed by an administrator there.

        A filter's birth time is never before this broker's last message: earlier bitmaps lack its
        bits.
        """
        for one in [one for topic in topics.values() for one in topic.group_filter_data.values()]:
            old = self.find(one.topic, one.consumer_group)
            if old is not None and not _is_later(one, old):
                continue
            if self._weight + _weight(one.expression) > self._limits.consumer_filter_nums_max:
                logger.warning(
                    "master filters skipped, limit reached consumerFilterNumsMax=%d",
                    self._limits.consumer_filter_nums_max,
                )
                return
            try:
                expression = self._compile(one.expression_type, one.expression)
            except ValueError:
                continue  # From a master that supports more.
            born_time = max(one.born_time, self._newest_stored_ms())
            taken = self._add(
                one.consumer_group,
                one.topic,
                one.expression_type,
                one.expression,
                expression,
                one.client_version,
                born_time,
            )
            if one.dead:
                taken.dead_time = max(one.dead_time, born_time)
            self._dirty = True

    def follow_deletions(self, gone: Iterable[StoredFilter]) -> None:
        """Forget filters that the master had when it was asked before, and no longer has.

        Filters that consumers have subscribed to again here stay, and so do live filters: a master
        forgets dead filters after a time.
        """
        for one in gone:
            known = self.find(one.topic, one.consumer_group)
            if known is None or known.client_version > one.client_version:
                continue
            if not one.dead or known.is_dead:
                self._remove(known)

    def persist(self) -> None:
        """Forget filters dead for too long; write the file if anything has changed."""
        self._clean()
        if self._dirty:
            self._document.save(self.document())
            self._dirty = False

    async def persist_in_thread(self) -> bool:
        """Persist, encoding and writing in a thread; return whether everything is written."""
        self._clean()
        if self._dirty:
            snapshot = {topic: dict(filters) for topic, filters in self._table.items()}
            self._dirty = False
            try:
                await asyncio.to_thread(
                    self._document.writing(lambda: run_to_end(self._steps_of(snapshot)))
                )
            except Exception:
                self._dirty = True
                logger.exception("consumer filters not written, will retry")
                return False
            except asyncio.CancelledError:
                # If no thread was free, the shutdown writes the filters.
                self._dirty = True
                raise
        return True

    def text(self, one: ConsumerFilter[E] | None) -> str:
        """Return a filter in the file's text form, "null" for None."""
        if one is None:
            return "null"
        return self._document.text(msgspec.to_builtins(self._stored(one))).decode()

    def document_steps(self) -> Generator[None, None, dict[str, Any]]:
        """Build the file's content, one filter at a time; changes meanwhile may be missing."""
        return self._steps_of(self._table)

    def document(self) -> dict[str, Any]:
        """Return all filters in the file's shape."""
        return run_to_end(self.document_steps())

    def _steps_of(
        self, table: Mapping[str, Mapping[str, ConsumerFilter[E]]]
    ) -> Generator[None, None, dict[str, Any]]:
        by_topic: dict[str, Any] = {}
        for topic, filters in list(table.items()):
            by_group = {}
            for group, one in list(filters.items()):
                by_group[group] = msgspec.to_builtins(self._stored(one))
                yield
            by_topic[topic] = {"groupFilterData": by_group, "topic": topic}
        return {"filterDataByTopic": by_topic}

    def _register(self, group: str, subscription: SubscriptionData) -> bool:
        """Register a filter; return whether it is new."""
        topic, version = subscription.topic, subscription.sub_version
        old = self.find(topic, group)
        if old is not None and version <= old.client_version:
            if version == old.client_version and old.is_dead:
                self._revive(old)
            return False
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
            return False
        most = self._limits.consumer_filter_nums_max
        if self._weight + _weight(subscription.sub_string) > most:
            logger.warning("consumer filter limit reached consumerFilterNumsMax=%d", most)
            return False
        try:
            expression = self._compile(subscription.expression_type, subscription.sub_string)
        except ValueError as error:
            # The answers to the group's pulls name the missing filter; a client has its expression
            # checked before it starts.
            logger.warning(
                "consumer filter not registered group=%s topic=%s reason=%s", group, topic, error
            )
            if old is not None:
                self._remove(old)
            return False
        self._add(
            group,
            topic,
            subscription.expression_type,
            subscription.sub_string,
            expression,
            version,
            max(self._clock.now_ms(), self._newest_stored_ms()),
        )
        self._dirty = True
        return True

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
        old = self.find(topic, group)
        if old is not None:
            self._weight -= _weight(old.text)
        self._weight += _weight(text)
        self._table.setdefault(topic, {})[group] = one
        self._by_group.setdefault(group, {})[topic] = one
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
        of_group = self._by_group[one.consumer_group]
        del of_group[one.topic]
        if not of_group:
            del self._by_group[one.consumer_group]
        self._weight -= _weight(one.text)
        self._dirty = True

    def _of_group(self, group: str) -> list[ConsumerFilter[E]]:
        return list(self._by_group.get(group, {}).values())

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


def _is_later(one: StoredFilter, old: ConsumerFilter[Any]) -> bool:
    if one.client_version != old.client_version:
        return one.client_version > old.client_version
    return (one.expression_type, one.expression) != (old.expression_type, old.text)


def _weight(text: str) -> int:
    return 1 + len(text) // CHARS_PER_FILTER
