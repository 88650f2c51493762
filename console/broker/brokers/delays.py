"""Pending delayed messages on a master: how many per level, and until when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

from broker_core.message import names
from broker_core.message.delay_levels import parse_delay_levels
from console.broker.brokers.services import broker_node
from console.gateway.access import gateway
from console.gateway.errors import NotFoundError
from console.gateway.files import ConfigFile
from console.lib.missing import MissingError
from console.lib.moment import now_ms
from console.lib.stored import BrokerQueue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from console.gateway.answers import BrokerNode, QueueStatus
    from console.lib.stored import StoredMessage

LEVELS_KEY = "messageDelayLevel"
LEVELS_USUAL = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
MESSAGES_SHOWN = 32
LATE_MS = 5_000


@dataclass(frozen=True, slots=True)
class Waiting:
    """A message in a delay level, with its due time and destination."""

    stored: StoredMessage
    due_ms: int

    @property
    def topic(self) -> str:
        """The topic it will be delivered to."""
        return self.stored.properties.get(names.PROPERTY_REAL_TOPIC, "")


@dataclass(frozen=True, slots=True)
class Level:
    """A delay level: its delay, its pending messages and their first offset."""

    number: int
    delay_ms: int | None  # None if messageDelayLevel no longer has this level
    offset: int
    max_offset: int
    first: Waiting | None = None
    last: Waiting | None = None

    @property
    def count(self) -> int:
        return max(0, self.max_offset - self.offset)

    @property
    def delay_s(self) -> float | None:
        return None if self.delay_ms is None else self.delay_ms / 1000

    @property
    def is_late(self) -> bool:
        """Return whether the first message is overdue by more than load can explain."""
        return self.first is not None and now_ms() - self.first.due_ms > LATE_MS


def delays_of(node: BrokerNode) -> dict[int, int]:
    """Return the delay of each level in milliseconds, by number."""
    keys = {each.key: each.value for each in gateway().cluster.configuration(node)}
    try:
        delays = parse_delay_levels(keys.get(LEVELS_KEY) or LEVELS_USUAL)
    except (KeyError, ValueError, IndexError):
        delays = parse_delay_levels(LEVELS_USUAL)
    return dict(enumerate(delays, 1))


def levels_of(node: BrokerNode) -> list[Level]:
    """Return a master's levels in order, with two requests for each level that has messages.

    Raises:
        GatewayError: the broker didn't respond.
    """
    delays, offsets, ends = delays_of(node), offsets_of(node), ends_of(node)
    numbers = sorted({*delays, *(queue_id + 1 for queue_id, row in ends.items() if row.max_offset)})
    return [level_of(node, number, delays, offsets, ends) for number in numbers]


def offsets_of(node: BrokerNode) -> dict[int, int]:
    """Return the next offset of each level that has delivered messages."""
    document = gateway().files.read(ConfigFile.DELAYS, [node.broker_name])[node.broker_name] or {}
    return {int(level): int(at) for level, at in document.get("offsetTable", {}).items()}


def ends_of(node: BrokerNode) -> dict[int, QueueStatus]:
    try:
        rows = gateway().topics.status(names.RMQ_SYS_SCHEDULE_TOPIC)
    except NotFoundError:
        return {}
    return {row.queue_id: row for row in rows if row.broker_name == node.broker_name}


def level_of(
    node: BrokerNode,
    number: int,
    delays: Mapping[int, int],
    offsets: Mapping[int, int],
    ends: Mapping[int, QueueStatus],
) -> Level:
    delay_ms, row = delays.get(number), ends.get(number - 1)
    if row is None:
        return Level(number, delay_ms, 0, 0)
    offset = max(offsets.get(number, 0), row.min_offset)
    if offset >= row.max_offset:
        return Level(number, delay_ms, offset, row.max_offset)
    first, last = (waiting_at(node, number, at, delays) for at in (offset, row.max_offset - 1))
    return Level(number, delay_ms, offset, row.max_offset, first, last)


def waiting_at(
    node: BrokerNode, number: int, offset: int, delays: Mapping[int, int]
) -> Waiting | None:
    queue = BrokerQueue(node.broker_name, number - 1)
    stored = gateway().browse.at(names.RMQ_SYS_SCHEDULE_TOPIC, queue, offset)
    return None if stored is None else waiting_of(stored, delays)


def waiting_of(stored: StoredMessage, delays: Mapping[int, int]) -> Waiting:
    """Return when a message of the schedule topic is due; unknown levels use the longest delay.

    A broker applies the same rule after a restart.
    """
    delay_ms = delays.get(stored.queue_id + 1, max(delays.values(), default=0))
    return Waiting(stored, stored.store_ms + delay_ms)


def next_in(node: BrokerNode, level: Level, offset: int) -> tuple[list[Waiting], int | None]:
    """Return a level's messages from an offset by delivery time, and the next offset or None."""
    queue = BrokerQueue(node.broker_name, level.number - 1)
    first = max(offset, level.offset)
    found = gateway().repair.copies(names.RMQ_SYS_SCHEDULE_TOPIC, queue, first, MESSAGES_SHOWN)
    delays = delays_of(node)
    waiting = [waiting_of(each.stored, delays) for each in found.messages]
    is_more = first < found.next_offset < level.max_offset
    return waiting, found.next_offset if is_more else None


def with_key(node: BrokerNode, levels: Sequence[Level], key: str) -> list[Waiting]:
    """Return pending messages with a key or unique key, next due first."""
    offsets = {level.number: level.offset for level in levels}
    found = gateway().browse.by_key(names.RMQ_SYS_SCHEDULE_TOPIC, key, 0, now_ms() + 1)
    delays = delays_of(node)
    waiting = [
        waiting_of(each, delays)
        for each in found.messages
        if each.broker_name == node.broker_name
        and each.queue_offset >= offsets.get(each.queue_id + 1, 0)
    ]
    return sorted(waiting, key=lambda each: each.due_ms)


def master(broker_name: str, broker_id: int) -> BrokerNode:
    node = broker_node(broker_name, broker_id)
    if not node.is_master:
        raise MissingError(
            _(
                "This broker is a slave and doesn't deliver delayed messages. Open its master "
                "instead."
            )
        )
    return node


def level_in(levels: Sequence[Level], number: int) -> Level:
    """Return a delay level by number.

    Raises:
        MissingError: the broker has no such level.
    """
    level = next((each for each in levels if each.number == number), None)
    if level is None:
        raise MissingError(_("The broker doesn't have this delay level."))
    return level
