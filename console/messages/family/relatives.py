"""Finds all records of a message that brokers store, using their indexes.

Delayed copies, retries, dead letters and resent copies share the message's unique key, or contain
the location of the first record. So do half messages, which Trebuchet brokers return in a separate
request; a committed message has the location of its last half message.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from django.utils.translation import gettext as _

from broker_core.message import names
from broker_core.message.ids import parse_offset_msg_id
from console.accounts.rights import acts_for
from console.gateway.access import gateway
from console.gateway.errors import GatewayError
from console.lib.moment import now_ms
from console.lib.stored import COMMITTED
from console.messages.family.client_traces import ClientRecord, records_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from console.lib.stored import StoredMessage

GROUPS_MAX = 20
"""Each group costs two index lookups on every broker."""
BEFORE_MS = 3 * 86_400_000
"""The maximum time that a message may wait before it reaches its topic."""
PROPERTY_REPLAYED = "TREBUCHET_REPLAY"


class Relation(StrEnum):
    """How a stored record relates to the message."""

    ITSELF = "itself"
    DEFERRED = "deferred"
    HALF = "half"
    RETRY = "retry"
    DEAD = "dead"
    AGAIN = "again"


class Relative(NamedTuple):
    """A record with its relation; `group` is set for retries, dead letters and pending ones."""

    kin: Relation
    message: StoredMessage
    group: str = ""


@dataclass(slots=True)
class Relatives:
    """All records of a message, by time.

    `problems` are sentences about failed lookups; `left_out` counts groups that were skipped;
    `retries_max` is the maximum number of retries for groups that had retries.
    """

    root: StoredMessage
    rows: list[Relative] = field(default_factory=list)
    groups: tuple[str, ...] = ()
    left_out: int = 0
    retries_max: dict[str, int] = field(default_factory=dict)
    client_records: list[ClientRecord] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def of(self, kin: Relation, group: str | None = None) -> list[StoredMessage]:
        return [
            each.message
            for each in self.rows
            if each.kin is kin and (group is None or group == each.group)
        ]


def relatives_of(asked: StoredMessage) -> Relatives:
    """Return all records of a message, starting from any of them."""
    found = Relatives(asked)
    _find_root(found)
    key = key_of(found.root)
    if not key:
        found.problems.append(
            _(
                "The message has no key, so the index can't find its copies. Retries and dead "
                "letters may exist."
            )
        )
    deferred = list(_with_key(found, names.RMQ_SYS_SCHEDULE_TOPIC, key))
    groups = _groups_of(found, deferred)
    found.groups, found.left_out = groups[:GROUPS_MAX], max(0, len(groups) - GROUPS_MAX)
    rows = [Relative(Relation.ITSELF, found.root, names.group_of(found.root.topic) or "")]
    rows += [
        Relative(Relation.DEFERRED, each, names.group_of(target_of(each)) or "")
        for each in deferred
    ]
    for group in found.groups:
        for kin, copies in (
            (Relation.RETRY, names.retry_topic(group)),
            (Relation.DEAD, names.dlq_topic(group)),
        ):
            for each in _with_key(found, copies, key):
                rows.append(Relative(kin, each, group))
    topic = first_topic(found.root)
    if names.group_of(topic) is None:
        rows += [Relative(Relation.AGAIN, each) for each in _with_key(found, topic, key)]
    rows += _halves_of(found, key)
    found.rows = sorted(_distinct(rows), key=lambda row: (row.message.store_ms, row.message.place))
    found.retries_max = _retries_max(found)
    found.client_records = _client_records(found, key)
    return found


def key_of(message: StoredMessage) -> str:
    return message.uniq_key or next(iter(message.keys.split()), "")


def target_of(message: StoredMessage) -> str:
    """Return the destination topic of a pending message."""
    return message.properties.get(names.PROPERTY_REAL_TOPIC, "")


def first_topic(message: StoredMessage) -> str:
    """Return the topic a message was sent to, or its current topic if only copies exist."""
    target = target_of(message)
    if target and names.group_of(target) is None:
        return target
    return message.properties.get(names.PROPERTY_RETRY_TOPIC, "") or message.topic


def is_of(message: StoredMessage, root: StoredMessage) -> bool:
    """Return whether a record belongs to the same message, not only to one with the same key."""
    if root.uniq_key:
        return message.uniq_key == root.uniq_key
    if message.origin_id:
        return message.origin_id in {root.offset_msg_id, root.origin_id}
    # Same time and socket: a client sends one message after the other.
    return (message.born_ms, message.born_host) == (root.born_ms, root.born_host)


def trace_topics() -> tuple[str, ...]:
    """Return the topics that clients send traces to; C++ clients use a different one."""
    return (names.RMQ_SYS_TRACE_TOPIC, "rmq_sys_TRACE_DATA_DefaultRegion")


def _find_root(found: Relatives) -> None:
    """Find the first record in the message's topic from any record, if it still exists."""
    asked = found.root
    # Clients that resend a message themselves name its unique key, by which the index finds it.
    is_elsewhere = asked.origin_id not in {"", asked.offset_msg_id, asked.uniq_key}
    place = parse_offset_msg_id(asked.origin_id) if is_elsewhere else None
    if place is not None:
        try:
            root = gateway().browse.by_id(place)
        except GatewayError as error:
            found.problems.append(error.what)
        else:
            if root is not None and is_of(asked, root):
                found.root = root
    topic = first_topic(found.root)
    if names.group_of(topic) is None:
        earliest = next(_with_key(found, topic, key_of(asked)), found.root)
        if topic != found.root.topic or earliest.store_ms < found.root.store_ms:
            found.root = earliest
    if found.root.is_half:
        # An uncommitted message has no other record than its half messages.
        found.root = next(_with_key(found, found.root.topic, key_of(asked)), found.root)
    if found.root.topic != topic and found.root.outcome in {"", COMMITTED}:
        found.problems.append(
            _("The first record, in %(topic)s, doesn't exist or has expired.") % {"topic": topic}
        )


def _groups_of(found: Relatives, deferred: Iterable[StoredMessage]) -> tuple[str, ...]:
    """Return the groups that may have received the message, with groups that have copies first."""
    root = found.root
    named = [names.group_of(target_of(each)) for each in deferred]
    named.append(names.group_of(root.topic))
    try:
        named += gateway().topics.consumers(first_topic(root))
    except GatewayError as error:
        found.problems.append(error.what)
    return tuple(dict.fromkeys(group for group in named if group))


def _with_key(found: Relatives, topic: str, key: str) -> Iterator[StoredMessage]:
    if not key:
        return
    root = found.root
    low_ms = max(0, min(root.store_ms, root.born_ms) - BEFORE_MS)
    try:
        named = gateway().browse.by_key(topic, key, low_ms, now_ms() + 1)
    except GatewayError as error:
        found.problems.append(error.what)
        return
    for name in named.without_index:
        found.problems.append(
            _("Broker %(name)s has no index, so its copies of this message are unknown.")
            % {"name": name}
        )
    yield from (each for each in reversed(named.messages) if is_of(each, root))


def _halves_of(found: Relatives, key: str) -> list[Relative]:
    """Return a transaction's half messages: the first, and a copy for each check."""
    root = found.root
    if not root.is_half and names.PROPERTY_TRANSACTION_PREPARED not in root.properties:
        return []
    halves = [
        Relative(Relation.HALF, each)
        for each in _with_key(found, names.RMQ_SYS_TRANS_HALF_TOPIC, key)
    ]
    return halves or _last_half_of(root)


def _last_half_of(root: StoredMessage) -> list[Relative]:
    """Return the half message that was committed as this one, if the broker shows it."""
    place = parse_offset_msg_id(root.offset_msg_id)
    if place is None or root.prepared_offset <= 0:
        return []
    try:
        half = gateway().browse.by_id(place._replace(commit_log_offset=root.prepared_offset))
    except GatewayError:
        return []
    return [] if half is None or not is_of(half, root) else [Relative(Relation.HALF, half)]


def _retries_max(found: Relatives) -> dict[str, int]:
    had = {row.group for row in found.rows if row.kin is Relation.RETRY and row.group}
    if not had:
        return {}
    try:
        groups = gateway().groups.all()
    except GatewayError:
        # The number of the retry is enough.
        return {}
    configs = {group: groups[group].config for group in had if group in groups}
    return {group: each.retry_max_times for group, each in configs.items() if each is not None}


def _distinct(rows: Iterable[Relative]) -> list[Relative]:
    seen: dict[tuple[str, str, int, int], Relative] = {}
    for row in rows:
        each = row.message
        seen.setdefault((each.topic, each.broker_name, each.queue_id, each.queue_offset), row)
    return list(seen.values())


def _client_records(found: Relatives, key: str) -> list[ClientRecord]:
    """Return the client records of the message, without others in the same batch."""
    ids = {found.root.uniq_key, found.root.offset_msg_id} - {""}
    if not key:
        return []
    records = []
    for topic in trace_topics():
        try:
            # Trace records contain keys and IDs, which no masking rule hides, and must be parsed.
            with acts_for(None):
                named = gateway().browse.by_key(
                    topic, key, max(0, found.root.store_ms - BEFORE_MS), now_ms() + 1
                )
        except GatewayError:
            # Not every cluster has the topic.
            continue
        for carrier in named.messages:
            records += [
                each
                for each in records_of(_body_of(carrier))
                if each.message_id in ids or (not each.kind and key in each.raw)
            ]
    return list(dict.fromkeys(records))


def _body_of(carrier: StoredMessage) -> bytes:
    if carrier.is_cut:
        try:
            with acts_for(None):
                whole = gateway().browse.at(
                    carrier.topic, carrier.queue, carrier.queue_offset, is_whole=True
                )
        except GatewayError:
            whole = None
        carrier = whole or carrier
    return carrier.body or b""
