"""Selects the records of the log that are events, and makes the rows of bronze.events.

Pure: no I/O. An event is a record of the log. Records of consumers' retry and dead-letter topics,
and committed messages, are both events and messages. Half messages, op messages and waiting
messages are internal to the broker, and bronze.messages leaves them out.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analytics.lake.tables import DAY, EVENTS
from broker_core.message import names
from broker_core.message.sys_flag import TRANSACTION_COMMIT_TYPE, TRANSACTION_MASK

_RETRY, _DEAD = names.RETRY_GROUP_TOPIC_PREFIX, names.DLQ_GROUP_TOPIC_PREFIX
_DELAYED, _HALF = names.RMQ_SYS_SCHEDULE_TOPIC, names.RMQ_SYS_TRANS_HALF_TOPIC
_OP, _GIVEN_UP = names.RMQ_SYS_TRANS_OP_HALF_TOPIC, names.RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC
OWN_TOPICS = frozenset({_DELAYED, _HALF, _OP, _GIVEN_UP})
EVENT_COLUMNS = (
    *("commit_log_offset", "topic", "queue_id", "queue_offset", "store_timestamp", "sys_flag"),
    *("reconsume_times", "uniq_key", "properties", "body"),
)
QUEUE_ID_MAX = 2**31 - 1
_OFFSET_TEXT = re.compile(rb"\d{1,18}")
_CHECKED = re.compile("[1-9][0-9]*")


def is_event(rows: pa.RecordBatch) -> pa.BooleanArray:
    """Return which messages are events; needs the columns `topic` and `sys_flag`."""
    topics = rows.column("topic")
    failed = pc.or_(pc.starts_with(topics, _RETRY), pc.starts_with(topics, _DEAD))
    return pc.or_(failed, _is_commit(rows))


def event_rows(records: pa.RecordBatch, broker: str) -> pa.RecordBatch:
    """EVENT_COLUMNS of event records -> EVENTS, one row for each half message that they end.

    `body` may be missing if no record is an op message.
    """
    kinds = _kinds(records)
    properties = records.column("properties")

    def property_of(name: str) -> pa.Array:
        return pc.map_lookup(properties, pa.scalar(name), "first")

    topics = records.column("topic")
    is_retry, is_dead = pc.equal(kinds, "retry"), pc.equal(kinds, "dead_letter")
    failed = pc.or_(is_retry, is_dead)
    about = pc.if_else(
        failed, property_of(names.PROPERTY_RETRY_TOPIC), property_of(names.PROPERTY_REAL_TOPIC)
    )
    prefix = len(_DEAD)
    group = pc.if_else(is_dead, pc.utf8_slice_codeunits(topics, prefix), None)
    group = pc.if_else(is_retry, pc.utf8_slice_codeunits(topics, len(_RETRY)), group)
    parents, halves = _halves(records, kinds)
    stored = records.column("store_timestamp")
    columns = {
        DAY: stored.cast(pa.date32()),
        "broker": pa.repeat(broker, records.num_rows),
        "event": kinds,
        "topic": pc.if_else(pc.equal(kinds, "commit"), topics, about),
        "consumer_group": group,
        "producer_group": property_of(names.PROPERTY_PRODUCER_GROUP),
        "delay_level": pc.if_else(
            pc.equal(kinds, "delay"),
            pc.add(pc.min_element_wise(records.column("queue_id"), QUEUE_ID_MAX - 1), 1),
            None,
        ),
    }
    taken = [
        halves
        if name == "half_queue_offset"
        else (columns[name] if name in columns else records.column(name)).take(parents)
        for name in EVENTS.schema.names
    ]
    return pa.RecordBatch.from_arrays(
        [each.cast(field.type) for each, field in zip(taken, EVENTS.schema, strict=True)],
        schema=EVENTS.schema,
    )


def _is_commit(rows: pa.RecordBatch) -> pa.BooleanArray:
    flags = pc.bit_wise_and(rows.column("sys_flag"), pa.scalar(TRANSACTION_MASK, pa.int32()))
    return pc.equal(flags, TRANSACTION_COMMIT_TYPE)


def _kinds(records: pa.RecordBatch) -> pa.StringArray:
    topics = records.column("topic")
    checks = pc.map_lookup(
        records.column("properties"),
        pa.scalar(names.PROPERTY_TRANSACTION_CHECK_TIMES),
        "first",
    )
    is_check = pa.array([bool(_CHECKED.fullmatch(each or "")) for each in checks.to_pylist()])
    conditions = {
        "retry": pc.starts_with(topics, _RETRY),
        "dead_letter": pc.starts_with(topics, _DEAD),
        "delay": pc.equal(topics, _DELAYED),
        "ended": pc.equal(topics, _OP),
        "given_up": pc.equal(topics, _GIVEN_UP),
        "check": pc.and_(pc.equal(topics, _HALF), is_check.cast(pa.bool_())),
        "half": pc.equal(topics, _HALF),
    }
    return pc.case_when(pc.make_struct(*conditions.values()), *conditions, "commit")


def _halves(records: pa.RecordBatch, kinds: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return for each row the index of its record, and the offset of the half message."""
    count = records.num_rows
    halves = pc.if_else(
        pc.is_in(kinds, value_set=pa.array(["half", "check"])), records.column("queue_offset"), None
    )
    ended = np.flatnonzero(pc.equal(kinds, "ended").to_numpy(zero_copy_only=False))
    if not len(ended):
        return pa.array(np.arange(count)), halves
    bodies = records.column("body").take(pa.array(ended)).to_pylist()
    lists: dict[int, list[int]] = {
        int(row): [int(each) for each in (body or b"").split(b",") if _OFFSET_TEXT.fullmatch(each)]
        for row, body in zip(ended, bodies, strict=True)
    }
    parents: list[int] = []
    places: list[int | None] = []
    for row, half in enumerate(halves.to_pylist()):
        of_row = lists.get(row, [half])
        parents += [row] * len(of_row)
        places += of_row
    return pa.array(parents, pa.int64()), pa.array(places, pa.int64())
