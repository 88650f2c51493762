"""The plan of an offset reset: each queue's target and its effect. Changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _, gettext_lazy

from console.gateway.answers import LATEST_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.gateway.answers import QueueStatus
    from console.gateway.ports import GroupGateway, OffsetGateway, TopicGateway
    from console.lib.stored import BrokerQueue

EARLIEST_TIMESTAMP = 0


class Mode(StrEnum):
    """Where a reset moves a group."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIMESTAMP = "timestamp"
    OFFSET = "offset"
    SHIFT = "shift"
    COPY = "copy"  # the offsets of another group
    RESTORE = "restore"  # the offsets before an earlier reset


# The form's choices; a restore starts from the audit log.
MODE_LABELS = {
    Mode.EARLIEST: gettext_lazy("Earliest retained message"),
    Mode.LATEST: gettext_lazy("End of the queue"),
    Mode.TIMESTAMP: gettext_lazy("A point in time"),
    Mode.OFFSET: gettext_lazy("Specific offset"),
    Mode.SHIFT: gettext_lazy("Move by a number of messages"),
    Mode.COPY: gettext_lazy("Another group's offsets"),
}
# Resets that RocketMQ brokers support for online groups, always in all queues.
MODES_BY_TIME = frozenset({Mode.EARLIEST, Mode.LATEST, Mode.TIMESTAMP})


class PlanError(Exception):
    """The reset isn't possible; the text is one sentence for people."""


@dataclass(frozen=True, slots=True)
class ResetRequest:
    """An administrator's request."""

    group: str
    topic: str
    mode: Mode
    timestamp_ms: int | None = None
    offset: int | None = None
    shift: int | None = None
    source: str = ""  # the group to copy from
    queue: BrokerQueue | None = None  # None: all queues
    offsets: Mapping[BrokerQueue, int] = field(default_factory=dict)  # to restore

    @property
    def is_by_time(self) -> bool:
        """Whether every broker can do this for an online group."""
        return self.mode in MODES_BY_TIME and self.queue is None

    @property
    def broker_timestamp_ms(self) -> int:
        """The time to send to a broker for moving consumers."""
        if self.mode is Mode.LATEST:
            return LATEST_TIMESTAMP
        if self.mode is Mode.TIMESTAMP and self.timestamp_ms is not None:
            return self.timestamp_ms
        return EARLIEST_TIMESTAMP


@dataclass(frozen=True, slots=True)
class Move:
    """One queue's old and new offset; `old` is None if the group never committed one."""

    queue: BrokerQueue
    min_offset: int
    max_offset: int
    old: int | None
    new: int
    is_bounded: bool  # the target was outside the retained range

    @property
    def redelivered(self) -> int | None:
        """Messages that will be redelivered; None without an old offset."""
        return None if self.old is None else max(0, self.old_retained - self.new)

    @property
    def skipped(self) -> int | None:
        """Messages that will be skipped; None without an old offset."""
        return None if self.old is None else max(0, self.new - self.old_retained)

    @property
    def old_retained(self) -> int:
        """The old offset, limited to the retained range, since expired messages don't count."""
        return min(max(self.old or 0, self.min_offset), self.max_offset)


@dataclass(frozen=True, slots=True)
class Plan:
    """All moves of a reset."""

    reset_request: ResetRequest
    is_online: bool
    moves: tuple[Move, ...]

    @property
    def redelivered(self) -> int:
        return sum(move.redelivered or 0 for move in self.moves)

    @property
    def skipped(self) -> int:
        return sum(move.skipped or 0 for move in self.moves)

    @property
    def is_idle(self) -> bool:
        return all(move.old == move.new for move in self.moves)


def make_plan(
    topics: TopicGateway, groups: GroupGateway, offsets: OffsetGateway, reset_request: ResetRequest
) -> Plan:
    """Return the effect of a request. Reads from brokers, changes nothing.

    Raises:
        PlanError: the request can't be fulfilled.
        GatewayError: a broker didn't respond, or the topic doesn't exist.
    """
    is_online = groups.connections(reset_request.group).is_online
    status = topics.status(reset_request.topic)
    if reset_request.queue is not None:
        status = tuple(row for row in status if row.queue == reset_request.queue)
    if reset_request.mode is Mode.RESTORE:
        status = tuple(row for row in status if row.queue in reset_request.offsets)
    if not status:
        raise PlanError(
            _("Topic %(topic)s no longer has this queue.") % {"topic": reset_request.topic}
        )
    old = committed(groups, reset_request.group, reset_request.topic)
    if reset_request.mode is Mode.COPY:
        targets = source_offsets(groups, reset_request)
        status = tuple(row for row in status if row.queue in targets)
        if not status:
            raise PlanError(
                _("Group %(group)s has no consumer offsets in these queues.")
                % {"group": reset_request.source}
            )
    else:
        targets = wanted(offsets, reset_request, status, old)
    moves = []
    for row in status:
        new = min(max(targets[row.queue], row.min_offset), row.max_offset)
        moves.append(
            Move(
                queue=row.queue,
                min_offset=row.min_offset,
                max_offset=row.max_offset,
                old=old.get(row.queue),
                new=new,
                is_bounded=new != targets[row.queue],
            )
        )
    return Plan(reset_request=reset_request, is_online=is_online, moves=tuple(moves))


def committed(groups: GroupGateway, group: str, topic: str) -> dict[BrokerQueue, int]:
    """Return a group's consumer offsets in a topic, omitting queues without one."""
    return {
        row.queue: row.consumer_offset
        for row in groups.progress(group).queues
        if row.topic == topic and row.consumer_offset is not None
    }


def source_offsets(groups: GroupGateway, reset_request: ResetRequest) -> dict[BrokerQueue, int]:
    """Return the offsets of the group to copy from.

    Raises:
        PlanError: it isn't another group.
    """
    if reset_request.source == reset_request.group or reset_request.source not in groups.all():
        raise PlanError(_("Choose the group to copy from."))
    return committed(groups, reset_request.source, reset_request.topic)


def wanted(
    offsets: OffsetGateway,
    reset_request: ResetRequest,
    status: tuple[QueueStatus, ...],
    old: Mapping[BrokerQueue, int],
) -> dict[BrokerQueue, int]:
    """Return each queue's target, ignoring retention."""
    keys = {row.queue: row for row in status}
    match reset_request.mode:
        case Mode.EARLIEST:
            return {key: row.min_offset for key, row in keys.items()}
        case Mode.LATEST:
            return {key: row.max_offset for key, row in keys.items()}
        case Mode.TIMESTAMP:
            if reset_request.timestamp_ms is None:
                raise PlanError(_("Enter the time to go to."))
            at = offsets.at(reset_request.topic, reset_request.timestamp_ms)
            return {key: at[key] for key in keys}
        case Mode.OFFSET:
            if reset_request.offset is None:
                raise PlanError(_("Enter the offset to go to."))
            return dict.fromkeys(keys, reset_request.offset)
        case Mode.RESTORE:
            return dict(reset_request.offsets)
        case Mode.COPY:
            raise AssertionError("another group's offsets don't depend on the queues")
        case Mode.SHIFT:
            if reset_request.shift is None:
                raise PlanError(_("Enter how many messages to move by."))
            missing = [key for key in keys if key not in old]
            if missing:
                raise PlanError(
                    _("Queue %(queue)d has no consumer offset to move from.")
                    % {"queue": missing[0].queue_id}
                )
            return {key: old[key] + reset_request.shift for key in keys}
