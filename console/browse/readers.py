"""Who consumed a message: what each group of its topic did with it, and how that is known."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from django.utils.translation import gettext as _, gettext_lazy, ngettext

from broker_core.delivery.sql92.parser import compile_expression
from broker_core.message import names
from console.accounts.rights import LOOKING_ON, acts_for
from console.gateway.access import gateway
from console.gateway.moment import now_ms

if TYPE_CHECKING:
    from console.gateway.answers import ConsumeProgress, GroupConnections, Member, QueueProgress
    from console.gateway.stored import StoredMessage

GROUPS_MAX = 20
"""Each costs a look into two indexes of every broker."""
BROADCASTING = "BROADCASTING"
TAG_EXPRESSION, SQL_EXPRESSION, ALL_TAGS, OR = "TAG", "SQL92", "*", "||"


class State(StrEnum):
    """What became of a message in a group."""

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
    State.FILTERED: gettext_lazy("not for it"),
    State.UNKNOWN: gettext_lazy("not known"),
}
COLOURS = {
    State.ACKNOWLEDGED: "ok",
    State.RETRIED: "warn",
    State.DEAD: "bad",
    State.WAITING: "info",
}


class Reading(NamedTuple):
    """A group with what it did; `copies` are the retries and dead letters, oldest first."""

    group: str
    state: State
    how: str
    copies: tuple[StoredMessage, ...]
    members: tuple[Member, ...]

    @property
    def label(self) -> str:
        return str(LABELS[self.state])

    @property
    def colour(self) -> str:
        return COLOURS.get(self.state, "")


class Readers(NamedTuple):
    """The groups of a topic; `left_out` counts those that were not looked at."""

    rows: tuple[Reading, ...]
    left_out: int


def readers_of(message: StoredMessage) -> Readers:
    """Return what the groups did with a message, as far as brokers know.

    Raises:
        GatewayError: a broker did not answer.
    """
    # Nobody gets a half message.
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
    """Return what a group gave back of a message: its retries and dead letters, oldest first."""
    key = message.uniq_key or next(iter(message.keys.split()), "")
    if not key:
        return ()
    # Whether there is a copy is a group's figure; each copy asks who may see it.
    with acts_for(lambda: LOOKING_ON):
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
    state, how = judged(message, progress, connections, copies)
    return Reading(group, state, how, copies, connections.members)


def judged(
    message: StoredMessage,
    progress: ConsumeProgress,
    connections: GroupConnections,
    copies: tuple[StoredMessage, ...],
) -> tuple[State, str]:
    if copies and names.is_dlq_topic(copies[-1].topic):
        return State.DEAD, _("Its copy lies among the group's dead letters.")
    if copies:
        return retried(copies, progress)
    if connections.message_model == BROADCASTING:
        return State.UNKNOWN, _("The group broadcasts: each member keeps its own offset.")
    row = row_of(message, progress)
    if row is None or row.consumer_offset is None:
        return State.UNKNOWN, _("The group has committed no offset in this queue.")
    before = message.queue_offset - row.consumer_offset
    if before >= 0:
        return State.WAITING, ngettext(
            "The group's offset is %(offset)d; %(count)d message is before it.",
            "The group's offset is %(offset)d; %(count)d messages are before it.",
            before,
        ) % {"offset": row.consumer_offset, "count": before}
    expression = other_tags(message, connections)
    if expression:
        return State.FILTERED, _("The group subscribes to %(tags)s and went past it.") % {
            "tags": expression
        }
    if sql := sql_of(message, connections):
        lets_through = matches(sql, message)
        if lets_through is None:
            return State.UNKNOWN, _(
                "The group's offset is beyond it; whether %(sql)s let it through is not known."
            ) % {"sql": sql}
        if not lets_through:
            return State.FILTERED, _(
                "The group subscribes to %(sql)s, which the message's properties do not meet, "
                "and went past it."
            ) % {"sql": sql}
    return State.ACKNOWLEDGED, _(
        "The group's offset, %(offset)d, is beyond it, and no copy of it came back."
    ) % {"offset": row.consumer_offset}


def retried(copies: tuple[StoredMessage, ...], progress: ConsumeProgress) -> tuple[State, str]:
    last = copies[-1]
    row = row_of(last, progress)
    reached = row.consumer_offset if row is not None else None
    if reached is not None and reached > last.queue_offset:
        return State.ACKNOWLEDGED, _(
            "The group's offset is beyond its last copy, retry %(count)d; another may wait "
            "for its delay."
        ) % {"count": last.reconsume_times}
    return State.RETRIED, _("Retry %(count)d waits in the group's retry topic.") % {
        "count": last.reconsume_times
    }


def row_of(message: StoredMessage, progress: ConsumeProgress) -> QueueProgress | None:
    for row in progress.queues:
        if row.topic == message.topic and row.queue == message.queue:
            return row
    return None


def other_tags(message: StoredMessage, connections: GroupConnections) -> str:
    """Return the tags that a group subscribes to, empty where the message's is among them."""
    for each in connections.subscriptions:
        if each.topic != message.topic or each.expression_type != TAG_EXPRESSION:
            continue
        tags = {tag.strip() for tag in each.sub_string.split(OR)}
        if ALL_TAGS not in tags and message.tags not in tags:
            return each.sub_string
    return ""


def matches(sql: str, message: StoredMessage) -> bool | None:
    """Tell whether an SQL expression lets a message through; None where that cannot be told."""
    if message.masked_by:
        # A property that is hidden here may be what it asks for.
        return None
    try:
        expression = compile_expression(sql)
    except ValueError:
        return None
    return expression.matches(message.properties.get)


def sql_of(message: StoredMessage, connections: GroupConnections) -> str:
    """Return the SQL expression by which a group reads the message's topic, empty without one."""
    return next(
        (
            each.sub_string
            for each in connections.subscriptions
            if each.topic == message.topic and each.expression_type == SQL_EXPRESSION
        ),
        "",
    )
