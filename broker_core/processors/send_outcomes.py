"""Answers to sends whose put was refused or is less safe than the sender asked for.

Source: broker/processor/SendMessageProcessor.java handlePutMessageResult (4.9.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.codes import ResponseCode
from broker_core.store.batch_parts import BATCH_KEYS_MAX, BATCH_MESSAGES_MAX
from broker_core.store.results import PutMessageStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

WARNING_CODES: Mapping[PutMessageStatus, ResponseCode] = {
    PutMessageStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}
"""The message is stored; clients require its location in the answer."""

REFUSALS: Mapping[PutMessageStatus, tuple[ResponseCode, str]] = {
    PutMessageStatus.CREATE_MAPEDFILE_FAILED: (
        ResponseCode.SYSTEM_ERROR,
        "create mapped file failed, server is busy or broken.",
    ),
    PutMessageStatus.MESSAGE_ILLEGAL: (
        ResponseCode.MESSAGE_ILLEGAL,
        "the message is illegal, maybe msg body or properties length not matched. "
        "msg body length limit {max_message_size}B, msg properties length limit 32KB.",
    ),
    PutMessageStatus.PROPERTIES_SIZE_EXCEEDED: (
        ResponseCode.MESSAGE_ILLEGAL,
        "the message is illegal, maybe msg body or properties length not matched. "
        "msg body length limit {max_message_size}B, msg properties length limit 32KB.",
    ),
    PutMessageStatus.SERVICE_NOT_AVAILABLE: (
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "service not available now. It may be caused by one of the following reasons: the "
        "broker's disk is full, an earlier write or flush failed, messages are put to the slave, "
        "the broker is shutting down.",
    ),
    PutMessageStatus.OS_PAGE_CACHE_BUSY: (
        ResponseCode.SYSTEM_ERROR,
        "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
    ),
    PutMessageStatus.UNKNOWN_ERROR: (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR"),
    PutMessageStatus.BATCH_TOO_LARGE: (
        ResponseCode.MESSAGE_ILLEGAL,
        f"the batch has more than {BATCH_MESSAGES_MAX} messages or {BATCH_KEYS_MAX} keys; send it "
        "in smaller batches",
    ),
}
