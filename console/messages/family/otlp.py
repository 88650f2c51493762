"""Exports of a message's history: OTLP in its JSON encoding, and JSON lines.

Names and attributes follow OpenTelemetry's semantic conventions for messaging. A message with a W3C
`traceparent` property continues that trace; otherwise the trace ID is the message's unique key,
which has the same length. Spans of consumers link to the message's own span.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from broker_core.message import names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from console.lib.stored import StoredMessage
    from console.messages.family.relatives import Relatives
    from console.messages.family.steps import Step

PROPERTY_TRACEPARENT = "traceparent"
PROPERTY_SHARDING_KEY = "__SHARDINGKEY"
TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?"
)
TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}")
INTERNAL, CLIENT, PRODUCER, CONSUMER = 1, 3, 4, 5
STATUS_ERROR = 2
NS_A_US = 1_000


class Operation(NamedTuple):
    """A stage in terms of the conventions: operation name, operation type and span kind."""

    name: str
    type: str
    kind: int


OPERATIONS = {
    "sent": Operation("send", "send", PRODUCER),
    "client_send": Operation("send", "send", PRODUCER),
    "stored": Operation("create", "create", PRODUCER),
    "client_consume": Operation("process", "process", CONSUMER),
    "client_end_transaction": Operation("settle", "settle", CLIENT),
    "delivered": Operation("receive", "receive", CLIENT),
    "acknowledged": Operation("ack", "settle", CLIENT),
    "given_back": Operation("nack", "settle", CLIENT),
}
ERRORS = frozenset({"dead", "refused", "given_back", "rolled_back", "expired"})


class Context(NamedTuple):
    """A trace and its parent span, which is empty if the message starts the trace."""

    trace_id: str
    parent_id: str


def context_of(message: StoredMessage) -> Context:
    """Return the trace that a message belongs to."""
    return context_of_ids(message.properties.get(PROPERTY_TRACEPARENT, ""), identity_of(message))


def context_of_ids(traceparent: str, identity: str) -> Context:
    """Return the trace that a message continues, or the trace that its ID starts."""
    given = TRACEPARENT.fullmatch(traceparent.strip())
    if given is not None:
        return Context(given[1], given[2])
    own = identity.lower()
    return Context(own if TRACE_ID.fullmatch(own) else digest(identity, 32), "")


def identity_of(message: StoredMessage) -> str:
    """Return the ID of a message and its copies in live traces."""
    return message.uniq_key or message.origin_id or message.offset_msg_id


def operation_of(stage: str) -> Operation:
    return OPERATIONS.get(stage, Operation(stage, "", INTERNAL))


def otlp_of(relatives: Relatives, steps: Sequence[Step]) -> str:
    """Return the steps that have a time as spans, in an ExportTraceServiceRequest."""
    spans = list(_spans(relatives.root, steps))
    scope = {"scope": {"name": "trebuchet"}, "spans": spans}
    resource = {"attributes": attributes({"service.name": "trebuchet"})}
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]})


def json_lines_of(steps: Sequence[Step]) -> str:
    """Return a line for each step, including those without a time."""
    return "".join(json.dumps(_line(step), ensure_ascii=False) + "\n" for step in steps)


def attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return attributes in OTLP's JSON form, without values that are None or empty."""
    return [
        {"key": key, "value": _value(value)}
        for key, value in values.items()
        if value is not None and value not in ("", [])
    ]


def _spans(root: StoredMessage, steps: Sequence[Step]) -> Iterator[dict[str, Any]]:
    context = context_of(root)
    own_id = digest(f"{context.trace_id} {identity_of(root)}", 16)
    timed = [step for step in steps if step.begin_us is not None]
    begin_us = min((step.begin_us or 0 for step in timed), default=root.store_ms * 1_000)
    whole = _span(root, "create", begin_us, max(begin_us, root.store_ms * 1_000))
    whole |= {"traceId": context.trace_id, "spanId": own_id, "kind": PRODUCER}
    if context.parent_id:
        whole["parentSpanId"] = context.parent_id
    whole["attributes"] += attributes({"messaging.operation.type": "create"})
    yield whole
    for number, step in enumerate(timed):
        yield _span_of(root, step, context, own_id, number)


def _span_of(
    root: StoredMessage, step: Step, context: Context, own_id: str, number: int
) -> dict[str, Any]:
    begin_us = step.begin_us or 0
    # The record's own span already covers its creation.
    operation = (
        Operation("stored", "", INTERNAL) if step.stage == "stored" else operation_of(step.stage)
    )
    span = _span(root, operation.name, begin_us, step.end_us or begin_us)
    group = step.actor.partition(" ")[0] if operation.kind in {CLIENT, CONSUMER} else None
    span |= {
        "traceId": context.trace_id,
        "spanId": digest(f"{own_id} {number} {step.stage} {begin_us}", 16),
        "parentSpanId": own_id,
        "kind": operation.kind,
    }
    span["attributes"] += attributes(
        {
            "messaging.operation.type": operation.type,
            "messaging.consumer.group.name": group,
            "messaging.client.id": dict(step.facts).get("clientId"),
            "trebuchet.certainty": str(step.certainty),
            "trebuchet.source": str(step.source),
            "error.type": step.stage if step.stage in ERRORS else None,
        }
    )
    if group is not None:
        span["links"] = [{"traceId": context.trace_id, "spanId": own_id}]
    if step.stage in ERRORS:
        span["status"] = {"code": STATUS_ERROR}
    return span


def _span(root: StoredMessage, operation: str, begin_us: int, end_us: int) -> dict[str, Any]:
    properties = root.properties
    level = properties.get(names.PROPERTY_DELAY_TIME_LEVEL, "")
    return {
        "name": f"{operation} {root.subject}",
        "startTimeUnixNano": str(begin_us * NS_A_US),
        "endTimeUnixNano": str(end_us * NS_A_US),
        "attributes": attributes(
            {
                "messaging.system": "rocketmq",
                "messaging.operation.name": operation,
                "messaging.destination.name": root.subject,
                "messaging.destination.partition.id": f"{root.broker_name}:{root.queue_id}",
                "messaging.message.id": root.uniq_key or root.offset_msg_id,
                "messaging.message.body.size": root.body_bytes,
                "messaging.rocketmq.namespace": names.namespace_of(root.subject),
                "messaging.rocketmq.message.type": _message_type(root),
                "messaging.rocketmq.message.tag": root.tags,
                "messaging.rocketmq.message.keys": root.keys.split(),
                "messaging.rocketmq.message.group": properties.get(PROPERTY_SHARDING_KEY),
                "messaging.rocketmq.message.delay_time_level": int(level)
                if level.isdecimal()
                else None,
            }
        ),
    }


def _message_type(message: StoredMessage) -> str:
    properties = message.properties
    if message.is_half or names.PROPERTY_TRANSACTION_PREPARED in properties:
        return "transaction"
    if names.PROPERTY_DELAY_TIME_LEVEL in properties:
        return "delay"
    return "fifo" if PROPERTY_SHARDING_KEY in properties else "normal"


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(each) for each in value]}}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"stringValue": str(value)}


def digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def _line(step: Step) -> dict[str, Any]:
    return {
        "stage": step.stage,
        "who": step.actor,
        "beginUs": None if step.begin_us is None else str(step.begin_us),
        "endUs": None if step.end_us is None else str(step.end_us),
        "certainty": str(step.certainty),
        "source": str(step.source),
        "how": step.evidence,
        "facts": dict(step.facts),
    }
