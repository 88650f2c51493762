"""Which groups consumed a message, and the evidence for it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from django.utils.translation import gettext as _, gettext_lazy, ngettext

from broker_core.delivery.sql92.parser import compile_expression
from broker_core.message import names
from console.accounts.rights import OBSERVER_RIGHTS, acts_for
from console.gateway.access import gateway
from console.lib.moment import now_ms

if TYPE_CHECKING:
    from console.gateway.answers import ConsumeProgress, GroupConnections, Member, QueueProgress
    from console.lib.stored import StoredMessage

GROUPS_MAX = 20
"""Each group costs two index lookups on every broker."""
BROADCASTING = "BROADCASTING"
TAG_EXPRESSION, SQL_EXPRESSION, ALL_TAGS, OR = "TAG", "SQL92", "*", "||"


class State(StrEnum):
    """The state of a message in a group."""

    ACKNOWLEDGED = "acknowledged"
    RETRIED = "retried"
    DEAD = "dead"
    WAITING = "waiting"
    FILTERED = "filtered"
    UNKNOWN = "unknown"


LABELS = {
    State.ACKNOWLEDGED: gettext_lazy("acknowledged"),
    State.RETRIED: gettext_lazy("in retry"),
    State.DEAD: gettext_lazy("dead letter"),
    State.WAITING: gettext_lazy("not yet"),
    State.FILTERED: gettext_lazy("not subscribed"),
    State.UNKNOWN: gettext_lazy("unknown"),
}
COLOURS = {
    State.ACKNOWLEDGED: "ok",
    State.RETRIED: "warn",
    State.DEAD: "bad",
    State.WAITING: "info",
}


class Reading(NamedTuple):
    """A group's state for a message; `copies` are retries and dead letters, oldest first."""

    group: str
    state: State
    evidence: str
    copies: tuple[StoredMessage, ...]
    members: tuple[Member, ...]

    @property
    def label(self) -> str:
        return str(LABELS[self.state])

    @property
    def colour(self) -> str:
        return COLOURS.get(self.state, "")


class Readers(NamedTuple):
    """The groups of a topic; `left_out` counts groups that weren't checked."""

    rows: tuple[Reading, ...]
    left_out: int


def readers_of(message: StoredMessage) -> Readers:
    """Return each group's state for a message, as far as brokers record it.

    Raises:
        GatewayError: a broker didn't respond.
    """
    # Half messages aren't delivered to consumers.
    groups = () if message.is_half else gateway().topics.consumers(message.topic)
    shown = groups[:GROUPS_MAX]
    progress = gateway().groups.progress_of(shown) if shown else {}
    connections = gateway().groups.connections_of(shown) if shown else {}
    rows = tuple(
        reading(message, name, progress[name], connections[name], copies_of(message, name))
        for name in shown
    )
    return Readers(rows, len(groups) - len(shown))


def copies_of(message: StoredMessage, group: str) -> tuple[StoredMessage, ...]:
    """Return a group's retries and dead letters of a message, oldest first."""
    key = message.uniq_key or next(iter(message.keys.split()), "")
    if not key:
        return ()
    # Anyone may see whether there is a copy; showing a copy checks the person's rights.
    with acts_for(lambda: OBSERVER_RIGHTS):
        found = [
            each
            for topic in (names.retry_topic(group), names.dlq_topic(group))
            if topic != message.topic
            for each in gateway().browse.by_key(topic, key, message.store_ms, now_ms() + 1).messages
            if each.origin_id == message.offset_msg_id
            or (message.uniq_key and each.uniq_key == message.uniq_key)
        ]
    return tuple(sorted(found, key=lambda each: each.store_ms))


def reading(
    message: StoredMessage,
    group: str,
    progress: ConsumeProgress,
    connections: GroupConnections,
    copies: tuple[StoredMessage, ...],
) -> Reading:
    state, evidence = judged(message, progress, connections, copies)
    return Reading(group, state, evidence, copies, connections.members)


def judged(
    message: StoredMessage,
    progress: ConsumeProgress,
    connections: GroupConnections,
    copies: tuple[StoredMessage, ...],
) -> tuple[State, str]:
    if copies and names.is_dlq_topic(copies[-1].topic):
        return State.DEAD, _("A copy is in the group's dead-letter topic.")
    if copies:
        return retried(copies, progress)
    if connections.message_model == BROADCASTING:
        return State.UNKNOWN, _("The group broadcasts: each consumer keeps its own offset.")
    row = row_of(message, progress)
    if row is None or row.consumer_offset is None:
        return State.UNKNOWN, _("The group hasn't committed an offset in this queue.")
    if row.is_beyond_end:
        return State.UNKNOWN, _(
            "The group's offset, %(offset)d, is beyond the end of the queue, so it doesn't show "
            "whether the group consumed this message."
        ) % {"offset": row.consumer_offset}
    before = message.queue_offset - row.consumer_offset
    if before >= 0:
        return State.WAITING, ngettext(
            "The group's offset is %(offset)d, with %(count)d message before this one.",
            "The group's offset is %(offset)d, with %(count)d messages before this one.",
            before,
        ) % {"offset": row.consumer_offset, "count": before}
    expression = other_tags(message, connections)
    if expression:
        return State.FILTERED, _(
            "The group subscribes to %(tags)s, so it skipped this message."
        ) % {"tags": expression}
    if sql := sql_of(message, connections):
        lets_through = matches(sql, message)
        if lets_through is None:
            return State.UNKNOWN, _(
                "The group's offset is past this message. Whether %(sql)s matched it is unknown."
            ) % {"sql": sql}
        if not lets_through:
            return State.FILTERED, _(
                "The group subscribes to %(sql)s, which this message's properties don't match, "
                "so it skipped the message."
            ) % {"sql": sql}
    return State.ACKNOWLEDGED, _(
        "The group's offset, %(offset)d, is past this message, and no retry copy exists."
    ) % {"offset": row.consumer_offset}


def retried(copies: tuple[StoredMessage, ...], progress: ConsumeProgress) -> tuple[State, str]:
    last = copies[-1]
    row = row_of(last, progress)
    reached = row.consumer_offset if row is not None else None
    if reached is not None and reached > last.queue_offset:
        return State.ACKNOWLEDGED, _(
            "The group's offset is past the last copy, retry %(count)d. Another retry may "
            "still be delayed."
        ) % {"count": last.reconsume_times}
    return State.RETRIED, _("Retry %(count)d is waiting in the group's retry topic.") % {
        "count": last.reconsume_times
    }


def row_of(message: StoredMessage, progress: ConsumeProgress) -> QueueProgress | None:
    for row in progress.queues:
        if row.topic == message.topic and row.queue == message.queue:
            return row
    return None


def other_tags(message: StoredMessage, connections: GroupConnections) -> str:
    """Return the tags that a group subscribes to, or nothing if they include the message's tag."""
    for each in connections.subscriptions:
        if each.topic != message.topic or each.expression_type != TAG_EXPRESSION:
            continue
        tags = {tag.strip() for tag in each.sub_string.split(OR)}
        if ALL_TAGS not in tags and message.tags not in tags:
            return each.sub_string
    return ""


def matches(sql: str, message: StoredMessage) -> bool | None:
    """Return whether an SQL expression matches a message, or None if that is unknown."""
    if message.masked_by:
        # The expression may use a property that is masked here.
        return None
    try:
        expression = compile_expression(sql)
    except ValueError:
        return None
    return expression.matches(message.properties.get)


def sql_of(message: StoredMessage, connections: GroupConnections) -> str:
    """Return the SQL expression of a group's subscription to the topic, or ""."""
    return next(
        (
            each.sub_string
            for each in connections.subscriptions
            if each.topic == message.topic and each.expression_type == SQL_EXPRESSION
        ),
        "",
    )
