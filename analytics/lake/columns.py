"""The meaning of each lake column: the comments in its tables and the help on the SQL page."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

COMMENT = "comment"

DESCRIPTIONS = {
    "day": "the day the broker stored the message, in UTC",
    "broker": "brokerName",
    "commit_log_offset": "the record's offset in the broker's log; unique per broker",
    "topic": "the topic that contains the message",
    "origin_topic": "the original topic of a retry or a replay",
    "queue_id": "the queue",
    "queue_offset": "the offset in the queue",
    "store_timestamp": "when the broker stored the message",
    "born_timestamp": "when the producer created the message, by the producer's clock",
    "store_size": "size of the whole record in bytes",
    "body_size": "size of the stored body in bytes",
    "flag": "a number that the producer can set",
    "sys_flag": "RocketMQ's bits for compression, transaction state and IPv6 hosts",
    "reconsume_times": "how often consumers have returned the message",
    "prepared_transaction_offset": "the log offset of a committed message's half message",
    "body_crc": "CRC32 of the body",
    "tags": "TAGS",
    "keys": "KEYS, split",
    "uniq_key": "UNIQ_KEY, the message ID that the client created",
    "properties": "all properties",
    "born_host": "the producer's address",
    "store_host": "the broker's address",
    "body": "the body, if a rule keeps it",
    "event": "retry, dead_letter or delay; half, check, commit, ended or given_up for a transaction"
    "retry, dead_letter or delay; half, check, commit, ended or given_up for a transaction",
    "consumer_group": "the group that will retry the message, or gave it up",
    "producer_group": "the group that began the transaction",
    "delay_level": "the level of a delay, from the broker's messageDelayLevel",
    "half_queue_offset": "the half message's offset in its queue; for ended, the one that ended",
    "commit_log_from": "the start of the range in the log",
    "commit_log_to": "the end of the range in the log",
    "reason": "the reason",
    "found_at": "when the lake found the gap",
    "forgotten_at": "when the content was erased",
    "minute": "the start of the minute",
    "messages": "number of messages",
    "bytes": "size of the records",
    "body_bytes": "size of the stored bodies",
    "at_most_ms": "the bucket's upper bound in ms; -1 in gold for messages from the future",
    "sum_ms": "the total in ms",
    "max_ms": "the maximum in ms",
    "key": "one of KEYS; null for all other keys together",
    "key_count": "number of keys in the row",
    "kind": "the subject's type: topic, group, progress of a group in a topic, broker or process; "
    "consumers and producers stand for the clients of a group with the same language and "
    "version",
    "name": "a broker's ID, a process's role, the consumers' language and version, or the "
    "producers' group, an @, and their language and version",
    "metric": "the metric: put, got, lag and so on",
    "unit": "msg, B, ms or calls; empty for plain numbers",
    "is_counter": "true for a counter, false for a gauge",
    "part": "the queue, or the histogram bucket; null for the total",
    "total": "a counter's increase in the minute, or the sum of a gauge's readings",
    "highest": "a gauge's highest reading, or a counter's largest increase in ten seconds",
    "weight": "the time in ms that a counter's total covers, or the number of a gauge's readings",
}


def comment_of(field: pa.Field) -> str:
    """Return a column's comment: the field's own, or the one shared by columns of that name."""
    said = (field.metadata or {}).get(COMMENT.encode())
    return DESCRIPTIONS.get(field.name, "") if said is None else said.decode()
