"""The handle that identifies a timer message to recall.

    URL-safe base64 of "v1 TOPIC BROKER TIME_MS UNIQ_KEY"

A handle is neither secret nor signed. The caller needs permission to send to the topic, and every
field must match a pending message.

Source: common/producer/RecallMessageHandle.java (5.3.3).
"""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING, NamedTuple

from broker_core.message.names import (
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_UNIQ_KEY,
    is_retry_topic,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = "v1"
HANDLE_CHARS_MAX = 4_096
FIELDS_MIN = 5
URL_SAFE = re.compile(r"[A-Za-z0-9_-]+={0,2}")
NO_TIME = -1
"""Replaces a time that isn't a number; like RocketMQ, the broker refuses the time."""


class RecallHandle(NamedTuple):
    """The fields of a handle."""

    topic: str
    broker_name: str
    due_ms: int
    uniq_key: str


def recall_handle_of(properties: Mapping[str, str], broker_name: str) -> str | None:
    """Return the handle of a pending message.

    None if the message has no unique key, or is a consumer's retry, which producers can't recall.
    """
    topic = properties[PROPERTY_REAL_TOPIC]
    uniq_key = properties.get(PROPERTY_UNIQ_KEY, "")
    # Spaces separate the fields.
    if not uniq_key or " " in uniq_key or is_retry_topic(topic):
        return None
    due_ms = int(properties[PROPERTY_TIMER_OUT_MS])
    return encode(RecallHandle(topic, broker_name, due_ms, uniq_key))


def encode(handle: RecallHandle) -> str:
    """Return the text of a handle."""
    text = f"{VERSION} {handle.topic} {handle.broker_name} {handle.due_ms} {handle.uniq_key}"
    return urlsafe_b64encode(text.encode()).decode()


def decode(text: str) -> RecallHandle:
    """Return the fields of a handle.

    Raises:
        ValueError: the text isn't a handle.
    """
    if len(text) > HANDLE_CHARS_MAX:
        raise ValueError("the handle is too long")
    try:
        if not URL_SAFE.fullmatch(text):
            raise ValueError("it has characters outside of the URL-safe alphabet")
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except (binascii.Error, ValueError) as error:
        raise ValueError("not base64") from error
    parts = data.split(" ")
    if len(parts) < FIELDS_MIN or parts[0] != VERSION or not parts[4]:
        raise ValueError("not five fields")
    # As in RocketMQ, fields of later versions are ignored; an empty field never matches.
    _, topic, broker_name, due, uniq_key = parts[:FIELDS_MIN]
    is_number = due.isascii() and due.isdecimal() and len(due) <= 19
    return RecallHandle(topic, broker_name, int(due) if is_number else NO_TIME, uniq_key)
