"""Check the messages that RocketMQ 5's clients send, in RocketMQ's order.

Source: proxy/grpc/v2/producer/SendMessageActivity.java, GrpcMessagingActivity (5.3.3).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from broker_core.errors import CallStatusError
from broker_core.grpc_messages.enums import Code
from broker_core.grpc_messages.shared import SystemProperties
from broker_core.grpc_messages.times import milliseconds_of
from broker_core.grpc_services.client_settings import BODY_BYTES_MAX
from broker_core.grpc_services.name_checks import full_name
from broker_core.grpc_services.property_names import RESERVED

if TYPE_CHECKING:
    from broker_core.grpc_messages.shared import Message

PROPERTIES_MAX = 128
PROPERTIES_BYTES_MAX = 16 * 1024
GROUP_BYTES_MAX = 64
RECOVERY_MS_MAX = 3_600_000
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def check_batch(messages: list[Message], topic: str) -> None:
    """Check the properties that the messages of one request must share.

    Raises:
        CallStatusError: MESSAGE_CORRUPTED.
    """
    if any(full_name(message.topic) != topic for message in messages):
        raise CallStatusError(Code.MESSAGE_CORRUPTED, "topic in message is not same")


def check_message(message: Message, now_ms: int, delay_ms_max: int) -> SystemProperties:
    """Check one message; return its system properties.

    Raises:
        CallStatusError: it can't be sent, with the reason.
    """
    system = message.system_properties or SystemProperties()
    _check_body(message.body)
    _check_properties(message, system)
    if not system.message_id.strip():
        raise CallStatusError(Code.ILLEGAL_MESSAGE_ID, "message id cannot be empty")
    recovery = system.orphaned_transaction_recovery_duration
    if recovery is not None and milliseconds_of(recovery) > RECOVERY_MS_MAX:
        raise CallStatusError(
            Code.BAD_REQUEST,
            "the max transaction recovery time of message is too large, max is "
            f"{RECOVERY_MS_MAX // 1000}",
        )
    if system.delivery_timestamp is not None:
        ahead_ms = milliseconds_of(system.delivery_timestamp) - now_ms
        if ahead_ms > delay_ms_max:
            raise CallStatusError(
                Code.ILLEGAL_DELIVERY_TIME,
                f"the max delay time of message is too large, max is {delay_ms_max}",
            )
    if system.message_group is not None:
        _check_group(system.message_group)
    return system


def _check_body(body: bytes) -> None:
    if not body:
        raise CallStatusError(Code.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if len(body) > BODY_BYTES_MAX:
        raise CallStatusError(
            Code.MESSAGE_BODY_TOO_LARGE, f"message body cannot exceed the max {BODY_BYTES_MAX}"
        )


def _check_properties(message: Message, system: SystemProperties) -> None:
    user = message.user_properties
    if len(user) > PROPERTIES_MAX:
        raise CallStatusError(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"too many user properties, max is {PROPERTIES_MAX}",
        )
    size = 0
    for name, value in user.items():
        if name in RESERVED:
            raise CallStatusError(
                Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property is used by system: {name}"
            )
        if _CONTROL.search(name):
            raise CallStatusError(
                Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
                "the key of property cannot contain control character",
            )
        if _CONTROL.search(value):
            raise CallStatusError(
                Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
                "the value of property cannot contain control character",
            )
        size += len(name.encode()) + len(value.encode())
    if system.tag is not None:
        _check_tag(system.tag)
        size += len(system.tag.encode())
    for key in system.keys:
        if not key.strip():
            raise CallStatusError(
                Code.ILLEGAL_MESSAGE_KEY, "key cannot be the char sequence of whitespace"
            )
        if _CONTROL.search(key):
            raise CallStatusError(Code.ILLEGAL_MESSAGE_KEY, "key cannot contain control character")
        size += len(key.encode())
    if size > PROPERTIES_BYTES_MAX:
        raise CallStatusError(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"the total size of user property is too large, max is {PROPERTIES_BYTES_MAX}",
        )


def _check_tag(tag: str) -> None:
    if not tag.strip():
        raise CallStatusError(
            Code.ILLEGAL_MESSAGE_TAG, "tag cannot be the char sequence of whitespace"
        )
    if "|" in tag:
        raise CallStatusError(Code.ILLEGAL_MESSAGE_TAG, "tag cannot contain '|'")
    if _CONTROL.search(tag):
        raise CallStatusError(Code.ILLEGAL_MESSAGE_TAG, "tag cannot contain control character")


def _check_group(group: str) -> None:
    if not group.strip():
        raise CallStatusError(
            Code.ILLEGAL_MESSAGE_GROUP, "message group cannot be the char sequence of whitespace"
        )
    if len(group.encode()) >= GROUP_BYTES_MAX:
        raise CallStatusError(
            Code.ILLEGAL_MESSAGE_GROUP, f"message group exceed the max size {GROUP_BYTES_MAX}"
        )
    if _CONTROL.search(group):
        raise CallStatusError(
            Code.ILLEGAL_MESSAGE_GROUP, "message group cannot contain control character"
        )
