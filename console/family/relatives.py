"""Relatives: what brokers store of one message besides itself, found by the indexes.

A message that waits for its delay, each retry and dead letter, each copy that was sent again share
its unique key, or name the place of the first one. So do half messages, which our brokers tell by a
request of their own; a committed message names the place of its last one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from django.utils.translation import gettext as _

from broker_core.message import names
from broker_core.message.ids import parse_offset_msg_id
from console.accounts.rights import acts_for
from console.family.client_traces import ClientRecord, records_of
from console.gateway.access import gateway
from console.gateway.errors import GatewayError
from console.gateway.moment import now_ms
from console.gateway.stored import COMMITTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from console.gateway.stored import StoredMessage

GROUPS_MAX = 20
"""Each costs a look into two indexes of every broker."""
BEFORE_MS = 3 * 86_400_000
"""So long a message may wait before it reaches its topic."""
PROPERTY_REPLAYED = "TREBUCHET_REPLAY"


class Kin(StrEnum):
    """What a stored record is to the message."""

    ITSELF = "itself"
    DEFERRED = "deferred"
    HALF = "half"
    RETRY = "retry"
    DEAD = "dead"
    AGAIN = "again"


class Relative(NamedTuple):
    """A record with what it is; `group` is of retries, dead letters and what waits to be one."""

    kin: Kin
    message: StoredMessage
    group: str = ""


@dataclass(slots=True)
class Relatives:
    """Everything stored of a message, by time.

    `problems` are sentences about what could not be looked up; `left_out` counts groups;
    `retries_max` says after how many retries a group gives up, of those that had some.
    """

    root: StoredMessage
    rows: list[Relative] = field(default_factory=list)
    groups: tuple[str, ...] = ()
    left_out: int = 0
    retries_max: dict[str, int] = field(default_factory=dict)
    client_records: list[ClientRecord] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def of(self, kin: Kin, group: str | None = None) -> list[StoredMessage]:
        return [
            each.message
            for each in self.rows
            if each.kin is kin and (group is None or group == each.group)
        ]


def relatives_of(asked: StoredMessage) -> Relatives:
    """Return the family of a message, whichever member of it is asked for."""
    found = Relatives(asked)
    _find_root(found)
    key = key_of(found.root)
    if not key:
        found.problems.append(
            _("It has no key, so no index names its copies: retries and dead letters may exist.")
        )
    deferred = list(_with_key(found, names.RMQ_SYS_SCHEDULE_TOPIC, key))
    groups = _groups_of(found, deferred)
    found.groups, found.left_out = groups[:GROUPS_MAX], max(0, len(groups) - GROUPS_MAX)
    rows = [Relative(Kin.ITSELF, found.root, names.group_of(found.root.topic) or "")]
    rows += [
        Relative(Kin.DEFERRED, each, names.group_of(target_of(each)) or "") for each in deferred
    ]
    for group in found.groups:
        for kin, copies in (
            (Kin.RETRY, names.retry_topic(group)),
            (Kin.DEAD, names.dlq_topic(group)),
        ):
            for each in _with_key(found, copies, key):
                rows.append(Relative(kin, each, group))
    topic = first_topic(found.root)
    if names.group_of(topic) is None:
        rows += [Relative(Kin.AGAIN, each) for each in _with_key(found, topic, key)]
    rows += _halves_of(found, key)
    found.rows = sorted(_distinct(rows), key=lambda row: (row.message.store_ms, row.message.place))
    found.retries_max = _retries_max(found)
    found.client_records = _client_records(found, key)
    return found


def key_of(message: StoredMessage) -> str:
    return message.uniq_key or next(iter(message.keys.split()), "")


def target_of(message: StoredMessage) -> str:
    """Return the topic that a message waits for."""
    return message.properties.get(names.PROPERTY_REAL_TOPIC, "")


def first_topic(message: StoredMessage) -> str:
    """Return the topic that a message was sent to; its own where only copies know."""
    target = target_of(message)
    if target and names.group_of(target) is None:
        return target
    return message.properties.get(names.PROPERTY_RETRY_TOPIC, "") or message.topic


def is_of(message: StoredMessage, root: StoredMessage) -> bool:
    """Tell whether a record is of the same message, not only of one with the same key."""
    if root.uniq_key:
        return message.uniq_key == root.uniq_key
    if message.origin_id:
        return message.origin_id in {root.offset_msg_id, root.origin_id}
    # Born at one moment at one socket, and a client sends one after the other.
    return (message.born_ms, message.born_host) == (root.born_ms, root.born_host)


def trace_topics() -> tuple[str, ...]:
    """Return the topics that clients trace to: C++ clients have another name for it."""
    return (names.RMQ_SYS_TRACE_TOPIC, "rmq_sys_TRACE_DATA_DefaultRegion")


def _find_root(found: Relatives) -> None:
    """Go from any record to the first one in the message's topic, where that is still there."""
    asked = found.root
    place = parse_offset_msg_id(asked.origin_id) if asked.origin_id else None
    if place is not None and asked.origin_id != asked.offset_msg_id:
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
        # Not committed: the first of its half messages is all there is.
        found.root = next(_with_key(found, found.root.topic, key_of(asked)), found.root)
    if found.root.topic != topic and found.root.fate in {"", COMMITTED}:
        found.problems.append(
            _("The first record, in %(topic)s, is not there (any more).") % {"topic": topic}
        )


def _groups_of(found: Relatives, deferred: Iterable[StoredMessage]) -> tuple[str, ...]:
    """Return the groups that may have had the message; those that had it first."""
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
            _("Broker %(name)s keeps no index: what it stores of this message is not known.")
            % {"name": name}
        )
    yield from (each for each in reversed(named.messages) if is_of(each, root))


def _halves_of(found: Relatives, key: str) -> list[Relative]:
    """Return the half messages of a transaction: the first, and a copy for each check."""
    root = found.root
    if not root.is_half and names.PROPERTY_TRANSACTION_PREPARED not in root.properties:
        return []
    halves = [
        Relative(Kin.HALF, each) for each in _with_key(found, names.RMQ_SYS_TRANS_HALF_TOPIC, key)
    ]
    return halves or _last_half_of(root)


def _last_half_of(root: StoredMessage) -> list[Relative]:
    """Return the half message that became this one, where a broker shows it, as the original."""
    place = parse_offset_msg_id(root.offset_msg_id)
    if place is None or root.prepared_offset <= 0:
        return []
    try:
        half = gateway().browse.by_id(place._replace(commit_log_offset=root.prepared_offset))
    except GatewayError:
        return []
    return [] if half is None or not is_of(half, root) else [Relative(Kin.HALF, half)]


def _retries_max(found: Relatives) -> dict[str, int]:
    had = {row.group for row in found.rows if row.kin is Kin.RETRY and row.group}
    if not had:
        return {}
    try:
        groups = gateway().groups.all()
    except GatewayError:
        # The number of a retry says enough.
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
    """Return what clients say of the message; a record of another one in the same batch is none."""
    ids = {found.root.uniq_key, found.root.offset_msg_id} - {""}
    if not key:
        return []
    records = []
    for topic in trace_topics():
        try:
            # Records of clients' traces hold keys and ids, which no rule hides, and are parsed.
            with acts_for(None):
                named = gateway().browse.by_key(
                    topic, key, max(0, found.root.store_ms - BEFORE_MS), now_ms() + 1
                )
        except GatewayError:
            # A cluster need not have the topic.
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
