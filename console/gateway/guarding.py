"""The guard: no call reaches a broker without the person's permission.

Each call of each gateway either has a rule here or is free for everyone who is signed in
(`tests/console/test_call_rules.py` checks this). A rule names the required actions, any one of
which is enough, and the topic or group; no action means administrators only, with a scope for API
tokens. People who can see messages but not read them get them without bodies; masking rules are
applied here too.
"""

from __future__ import annotations

from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, cast

from broker_core.message.names import HIDDEN_TOPICS
from console.accounts.actions import Action
from console.accounts.rights import rights_now
from console.gateway.connections import INNER_PRODUCER_GROUP
from console.gateway.copies import Copies, MessageCopy
from console.gateway.flight_recorder import RecordedEvents
from console.lib.stored import KeyFound, NewestMessages, StoredMessage
from console.people.masking.access import as_masked, every_rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from console.accounts.rights import Rights
    from console.gateway.ports import (
        AccountGateway,
        BrowseGateway,
        FileGateway,
        Gateway,
        GroupGateway,
        NameServerGateway,
        OffsetGateway,
        RecorderGateway,
        RepairGateway,
        SendingGateway,
        TopicGateway,
    )
    from console.people.masking.models import MaskingRule

    Need = tuple[tuple[Action, ...], str]
    Rule = Callable[..., Iterable[Need]]


def need(name: str, *actions: Action) -> tuple[Need]:
    return ((actions, name),)


def viewing_needs(topic: str) -> tuple[Need, ...]:
    """Return the needs for a topic's messages; half messages count as their destination topic's."""
    return () if topic in HIDDEN_TOPICS else need(topic, Action.SEE)


def administrator(scope: str) -> tuple[Need]:
    """Return a need that only administrators, and their tokens with this scope, satisfy."""
    return (((), scope),)


BROKERS = "brokers:write"
# Deleting a group can delete its offsets, and undoing that restores them.
OFFSETS = (Action.OFFSET, Action.GROUP)
RULES: dict[str, dict[str, Rule]] = {
    "topics": {
        "save": lambda config, broker_names: need(config.topic, Action.TOPIC),
        "delete": lambda topic: need(topic, Action.TOPIC),
    },
    "groups": {
        "running": lambda group, members, *, with_threads=False: (
            need(group, Action.MEMBER) if with_threads else ()
        ),
        "save": lambda config, broker_names: need(config.group, Action.GROUP),
        "delete": lambda group, *, remove_offset: need(group, Action.GROUP),
        # The connection is closed for all the client's groups.
        "disconnect": lambda group, client_id, groups: [
            ((Action.DISCONNECT,), name)
            for name in sorted({group, *groups} - {INNER_PRODUCER_GROUP} or {group})
        ],
    },
    "offsets": {
        "commit": lambda group, topic, offsets: need(group, *OFFSETS),
        "reset_online": lambda group, topic, timestamp_ms: need(group, Action.OFFSET),
        "move_online": lambda group, topic, offsets: need(group, Action.OFFSET),
    },
    "files": {
        "drop_topic": lambda topic, broker_name: need(topic, Action.TOPIC),
        "drop_group": lambda group, broker_name: need(group, Action.GROUP),
        "move_delay": lambda level, offset, broker_name: administrator(BROKERS),
        "save_filter": lambda wanted, broker_name: need(wanted.group, Action.GROUP),
        "drop_filter": lambda group, topic, broker_name: need(group, Action.GROUP),
    },
    "browse": {
        "newest": lambda wanted, before, count: need(wanted.topic, Action.SEE),
        "at": lambda topic, queue, offset, *, is_whole=False: viewing_needs(topic),
        # The topic is only known from the answer.
        "by_id": lambda offset_msg_id: (),
        "by_key": lambda topic, key, low_ms, high_ms: viewing_needs(topic),
        "by_key_in": lambda topics, key, low_ms, high_ms, seconds: [
            each for topic in topics for each in viewing_needs(topic)
        ],
    },
    "repair": {
        "copies": lambda topic, queue, offset, count: need(topic, Action.SEE),
        "resend": lambda copy, queue, properties: need(queue.topic, Action.SEND, Action.REPLAY),
    },
    "sending": {
        "send": lambda outgoing: [
            ((Action.SEND,), topic)
            for topic in dict.fromkeys(each.queue.topic for each in outgoing)
        ],
        "end": lambda half, *, is_commit: need(half.queue.topic, Action.SEND),
        "decide": lambda half, *, is_commit: need(half.topic, Action.SEND),
        "check": lambda half: need(half.topic, Action.SEND),
        "deliver": lambda broker_name, offset_msg_id, group, client_id: need(group, Action.REPLAY),
    },
    "accounts": {
        "all": lambda: administrator("people:read"),
        "save": lambda node, account, secret: administrator("people:write"),
        "delete": lambda node, access_key: administrator("people:write"),
        "set_white_addresses": lambda node, addresses: administrator("people:write"),
        "explain": lambda node, question: administrator("people:read"),
    },
    "naming": {
        "put": lambda address, namespace, key, value: administrator(BROKERS),
        "remove": lambda address, namespace, key: administrator(BROKERS),
        "set_writable": lambda broker_name, *, is_writable: administrator(BROKERS),
    },
    "recorder": {
        # Each event in the answer has its topic.
        "recorded": lambda question, minutes, limit, wanted: (),
    },
}
FREE: dict[str, frozenset[str]] = {
    "topics": frozenset({"all", "status", "oldest", "traffic", "consumers"}),
    "groups": frozenset(
        {
            "all",
            "connections",
            "connections_of",
            "progress",
            "progress_of",
            "producers",
            "connected",
        }
    ),
    "offsets": frozenset({"at"}),
    "files": frozenset({"read", "check_filter"}),
    "browse": frozenset(),
    "repair": frozenset({"writable"}),
    # The page reports how many rows it hides.
    "sending": frozenset({"undecided", "timers"}),
    # The trace level belongs to the administrators' page.
    "accounts": frozenset(),
    "naming": frozenset({"views"}),
    "recorder": frozenset({"levels", "set_level"}),
}
"""Calls that return names and figures only."""


def guarded(plain: Gateway) -> Gateway:
    """Return the gateways with their rules applied."""
    return replace(
        plain,
        topics=cast("TopicGateway", Guarded(plain.topics, RULES["topics"])),
        groups=cast("GroupGateway", Guarded(plain.groups, RULES["groups"])),
        offsets=cast("OffsetGateway", Guarded(plain.offsets, RULES["offsets"])),
        files=cast("FileGateway", Guarded(plain.files, RULES["files"])),
        browse=cast("BrowseGateway", Guarded(plain.browse, RULES["browse"])),
        repair=cast("RepairGateway", Guarded(plain.repair, RULES["repair"])),
        sending=cast("SendingGateway", Guarded(plain.sending, RULES["sending"])),
        accounts=cast("AccountGateway", Guarded(plain.accounts, RULES["accounts"])),
        naming=cast("NameServerGateway", Guarded(plain.naming, RULES["naming"])),
        recorder=cast("RecorderGateway", Guarded(plain.recorder, RULES["recorder"])),
    )


class Guarded:
    """One gateway, whose calls are checked against the caller's permissions."""

    def __init__(self, port: object, rules: Mapping[str, Rule]) -> None:
        self._port = port
        self._rules = rules

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        rule = self._rules.get(name)
        if rule is None:
            return found

        @wraps(found)
        def checked(*args: Any, **kwargs: Any) -> Any:
            rights = rights_now()
            if rights is None:
                return found(*args, **kwargs)
            for actions, subject in rule(*args, **kwargs):
                if not actions:
                    rights.require_administrator(subject)
                elif not any(rights.may(each, subject) for each in actions):
                    raise rights.refusal(actions[0], subject)
            return shown(found(*args, **kwargs), rights)

        return checked


def shown(answer: Any, rights: Rights) -> Any:
    """Return the part of an answer that these rights allow."""
    if isinstance(answer, StoredMessage):
        rights.require(Action.SEE, answer.subject)
        return as_seen(answer, rights, every_rule())
    if isinstance(answer, dict):
        return {name: shown(each, rights) for name, each in answer.items()}
    if isinstance(answer, RecordedEvents):
        events = (each for each in answer.events if rights.may(Action.SEE, str(each["topic"])))
        return replace(answer, events=tuple(events))
    if isinstance(answer, NewestMessages | KeyFound):
        rules = every_rule()
        seen = (
            as_seen(each, rights, rules)
            for each in answer.messages
            if not each.is_half or rights.may(Action.SEE, each.subject)
        )
        return replace(answer, messages=tuple(seen))
    if isinstance(answer, Copies):
        rules = every_rule()
        return replace(
            answer, messages=tuple(copy_seen(each, rights, rules) for each in answer.messages)
        )
    return answer


def as_seen(message: StoredMessage, rights: Rights, rules: list[MaskingRule]) -> StoredMessage:
    seen = as_masked(message, rights, rules)
    if rights.may(Action.READ, message.subject):
        return seen
    return replace(seen, body=None, is_cut=False)


def copy_seen(copy: MessageCopy, rights: Rights, rules: list[MaskingRule]) -> MessageCopy:
    seen = as_seen(copy.stored, rights, rules)
    # Someone who can't see the whole message must not get its packed body.
    return copy if seen is copy.stored else replace(copy, stored=seen, body=b"")
