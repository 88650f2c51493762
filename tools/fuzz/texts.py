"""Targets for texts: fastjson's JSON, bodies, SQL92, tags, properties, files edited by people."""

from __future__ import annotations

import contextlib
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from broker_core.access.acl_files import AclFiles, changes
from broker_core.access.address_rule import parse_rule, parts_of
from broker_core.access.rules import RULES
from broker_core.config.loading import build
from broker_core.config.properties import parse_properties, replace_values
from broker_core.config.update import update, update_namesrv
from broker_core.delivery.sql92.java_values import EvaluationError
from broker_core.delivery.sql92.parser import compile_expression
from broker_core.errors import ConfigError, RequestRefusedError, StoreError
from broker_core.message import properties as message_properties
from broker_core.message.data_version import DataVersion
from broker_core.message.names import PROPERTY_TAGS
from broker_core.message.subscription import build_subscription
from broker_core.processors.heartbeat import CheckClientRequest, HeartbeatData, LockBatchRequest
from broker_core.processors.json_body import read_json
from broker_core.protocol import java_json
from broker_core.protocol.bodies.cluster import ClusterInfo
from broker_core.protocol.bodies.registration import (
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
)
from broker_core.protocol.bodies.route import TopicRouteData
from broker_core.protocol.bodies.tables import KVTable
from broker_core.protocol.codes import RequestCode
from broker_core.protocol.command import RemotingCommand
from broker_core.trace.event import TraceEvent
from broker_core.trace.filter import STAGES, STEPS, TraceWatch, compile_filter, stages_of
from broker_core.trace.selection import EventSelection
from broker_core.transaction import op
from tests.support.builders import a_message_ext
from tests.support.clock import ManualClock
from tests.support.faulty_storage import FaultyStorage
from tools.fuzz.target import Target

BODIES: tuple[type[Any], ...] = (
    HeartbeatData,
    CheckClientRequest,
    LockBatchRequest,
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
    TopicRouteData,
    ClusterInfo,
    KVTable,
    DataVersion,
)
REFERENCE = b'"$ref"'
GUARDED = (
    RequestCode.HEART_BEAT,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.CHECK_CLIENT_CONFIG,
)
"""Requests whose bodies determine the required permissions."""
OP_MESSAGE = a_message_ext("RMQ_SYS_TRANS_OP_HALF_TOPIC", properties={PROPERTY_TAGS: op.REMOVE_TAG})
ACL_FILE = Path("/conf/plain_acl.yml")
CONFIGURATION = build({})[0]
ADDRESSES = tuple(map(parts_of, ("127.0.0.1", "10.1.2.3", "::1", "2001:db8::7")))


def any_json(data: bytes) -> None:
    """A parsed value is written so that it reads back equal, compact and pretty."""
    try:
        value = java_json.decode(data)
    except ValueError:
        return
    value = _without_nulls(value)
    if REFERENCE in data:
        # It may expand far beyond its size, and writing it takes time accordingly.
        return
    for text in (java_json.encode(value), java_json.encode_pretty(value)):
        assert java_json.decode(text) == value


def _without_nulls(value: Any) -> Any:
    """Return a value as fastjson writes it: without null members."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def bodies(data: bytes) -> None:
    """A body has its type, or is rejected; a valid one can be written and read again."""
    kind, body = BODIES[(data[0] if data else 0) % len(BODIES)], data[1:]
    for code in GUARDED:
        with contextlib.suppress(ValueError):
            list(RULES[code].needs(RemotingCommand.request(code, body=body)))
    try:
        value = java_json.decode_as(body, kind)
    except ValueError:
        return
    assert java_json.decode_as(msgspec.json.encode(value), kind) == value
    assert java_json.decode_as(java_json.encode(msgspec.to_builtins(value)), kind) == value


def registrations(data: bytes) -> None:
    """A compressed registration reads back as written."""
    for body in (data, zlib.compress(data, 1)):
        with contextlib.suppress(ValueError):
            found = RegisterBrokerBody.decode(body, is_compressed=True)
            again = RegisterBrokerBody.decode(found.encode(is_compressed=True), is_compressed=True)
            assert again == found


def sql92(data: bytes) -> None:
    """An expression compiles or is rejected with a reason; evaluation ends, with one value."""
    text, _, properties = data.decode("utf-8", "replace").partition("\n\n")
    try:
        expression = compile_expression(text)
    except ValueError:
        return
    table = message_properties.decode(properties)
    is_match = expression.matches(table.get)
    try:
        value = expression.evaluate(table.get)
    except EvaluationError:
        assert not is_match
    else:
        assert value in (True, False, None)
        assert is_match is (value is True)
    assert compile_expression(text).matches(table.get) is is_match


def tags(data: bytes) -> None:
    """A tag subscription has the same tags after writing and reading."""
    text = data.decode("utf-8", "replace")
    with contextlib.suppress(ValueError):
        found = build_subscription("topic", text, 1)
        again = build_subscription("topic", found.sub_string, 1)
        assert again == found
        assert len(found.code_set) == len(found.tags_set)


def properties_of_messages(data: bytes) -> None:
    """Properties are written so that they read back equal; one pair can be removed."""
    text = data.decode("utf-8", "replace")
    table = message_properties.decode(text)
    assert message_properties.decode(message_properties.encode(table)) == table
    if text:
        name, value = next(iter(table.items()), ("a", "b"))
        without = message_properties.without(text, name, value)
        assert message_properties.decode(without).get(name) != value


def op_messages(data: bytes) -> None:
    """The body of an op message is a list of queue offsets, possibly empty."""
    message = replace(OP_MESSAGE, body=data)
    found = op.half_queue_offsets(message)
    assert all(0 <= offset < 10**19 for offset in found)
    assert op.half_queue_offsets(replace(message, body=b",".join(map(op.body_of, found)))) == found


def accounts(data: bytes) -> None:
    """An account file is read or rejected with a message; a changed one stays readable."""
    storage = FaultyStorage()
    storage.write_atomically(ACL_FILE, data)
    files = AclFiles(ACL_FILE, ManualClock(), storage)
    try:
        files.load()
    except StoreError:
        return
    before = files.state
    rule = [matches(parts) for matches in before.global_white for parts in ADDRESSES]
    assert all(isinstance(each, bool) for each in rule)
    for account in before.accounts.values():
        assert isinstance(account.may(4, "topic"), bool)
    try:
        files.put_account({"accessKey": "0123456789", "secretKey": "0123456789"})
    except ValueError:
        return
    assert list(changes(before, files.state))
    other = AclFiles(ACL_FILE, ManualClock(), storage)
    other.load()
    assert other.state.accounts.keys() == files.state.accounts.keys()


def address_rules(data: bytes) -> None:
    """A rule is valid or rejected; a valid one matches any address or not."""
    text, _, address = data.decode("utf-8", "replace").partition("\n")
    with contextlib.suppress(ValueError):
        rule = parse_rule(text)
        for parts in (*ADDRESSES, parts_of(address)):
            assert isinstance(rule(parts), bool)


def configurations(data: bytes) -> None:
    """A properties file is readable; changing one value changes no other."""
    text = data.decode("utf-8", "replace")
    table = parse_properties(text)
    with contextlib.suppress(ConfigError):
        update(CONFIGURATION, table)
    with contextlib.suppress(ConfigError):
        update_namesrv(CONFIGURATION.namesrv, table)
    for key in (*list(table)[:2], "trebuchetKey"):
        expected = {key: "1\\2"}
        assert parse_properties(replace_values(text, expected)) == {**table, **expected}


def watches(data: bytes) -> None:
    """A watch is valid or rejected; its filters work for any event."""
    try:
        watch: TraceWatch = read_json(data, TraceWatch, "the watch")
    except RequestRefusedError:
        return
    selection = EventSelection()
    filters = list(watch.named().values())
    selection.take(filters, is_full=False)
    for expected in filters:
        message, here = compile_filter(expected)
        for event in EVENTS:
            assert isinstance(message(event, {"a": "b"}), bool)
            assert isinstance(here(event, {"a": "b"}), bool)
        assert stages_of(expected) <= STAGES.union(STEPS)
    assert isinstance(selection.wants("orders", "7F0000010000"), bool)
    assert isinstance(selection.wants_of_pulls("orders" * 20, "group", None), bool)


EVENTS = (
    TraceEvent(time_ms="1", stage="stored", topic="orders", queue_id=0, queue_offset="7"),
    TraceEvent(
        time_ms="1",
        stage="acknowledged",
        topic="orders" * 20,
        queue_id=1,
        queue_offset="9",
        acknowledged_from="3",
        uniq_key="7F0000010000",
        message_id="7F0000010000",
        keys="a b",
        client="127.0.0.1:1",
        latency_us=7,
        total_us=9,
        steps={"received": 0, "appended": 9},
    ),
)

TARGETS = (
    Target("java_json", "JSON and fastjson's dialect", any_json),
    Target("body", "JSON request bodies, decoded into their types", bodies, 0.3),
    Target("registration", "compressed registrations of brokers", registrations, 0.7),
    Target("sql92", "filter expressions and their results for a message", sql92),
    Target("tag_expression", "tag subscriptions", tags, 1.5),
    Target("properties", "message properties", properties_of_messages, 1.5),
    Target("op_message", "queue offsets in op messages", op_messages, 1.5),
    Target("plain_acl", "account files", accounts, 0.02, grown_bytes=8 * 1024),
    Target("address_rule", "whitelisted addresses", address_rules),
    Target(
        "configuration",
        "property files and changes of their keys",
        configurations,
        0.05,
        # It's read seven times.
        grown_bytes=16 * 1024,
    ),
    Target("trace_watch", "live-tracing filters", watches),
)
