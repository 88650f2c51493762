"""Distinguishes client topics and groups from the broker's own."""

from __future__ import annotations

from broker_core.message import names
from console.gateway.answers import TopicKind


def topic_kind(name: str, system_topics: frozenset[str] = frozenset()) -> TopicKind:
    """Return the kind of a topic; `system_topics` are special in this cluster only."""
    if names.is_retry_topic(name):
        return TopicKind.RETRY
    if names.is_dlq_topic(name):
        return TopicKind.DLQ
    if (
        names.is_system_topic(name)
        or name in system_topics
        or name.endswith(f"_{names.REPLY_TOPIC_POSTFIX}")
    ):
        return TopicKind.SYSTEM
    return TopicKind.NORMAL


def is_system_group(name: str) -> bool:
    return name in names.SYSTEM_GROUPS or name.startswith(names.CID_RMQ_SYS_PREFIX)
