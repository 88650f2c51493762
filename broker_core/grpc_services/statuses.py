"""The statuses of requests that the broker refused or that failed.

Source: proxy/grpc/v2/common/ResponseBuilder.java (5.3.3).
Differs: NO_PERMISSION is FORBIDDEN, an invalid filter is ILLEGAL_FILTER_EXPRESSION and a missing
topic is TOPIC_NOT_FOUND; RocketMQ answers INTERNAL_SERVER_ERROR, which clients retry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.errors import AccessRefusedError, CallStatusError, RequestRefusedError
from broker_core.grpc_messages.enums import Code
from broker_core.grpc_messages.shared import Status
from broker_core.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

OK = Status(Code.OK, "OK")
MESSAGE_CHARS_MAX = 1_024
CODES: Mapping[int, Code] = {
    ResponseCode.SUCCESS: Code.OK,
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
    ResponseCode.NO_PERMISSION: Code.FORBIDDEN,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: Code.ILLEGAL_FILTER_EXPRESSION,
    ResponseCode.ILLEGAL_OPERATION: Code.BAD_REQUEST,
}
"""Every other code becomes INTERNAL_SERVER_ERROR."""


def status_of(code: int, remark: str | None) -> Status:
    """Return the status for a response's code and remark."""
    found = CODES.get(code, Code.INTERNAL_SERVER_ERROR)
    return OK if found is Code.OK else Status(found, (remark or "")[:MESSAGE_CHARS_MAX])


def status_of_error(error: CallStatusError | RequestRefusedError) -> Status:
    """Return the status of a refusal."""
    if isinstance(error, CallStatusError):
        return Status(error.code, str(error)[:MESSAGE_CHARS_MAX])
    if isinstance(error, AccessRefusedError):
        return Status(Code.UNAUTHORIZED, (error.remark or "")[:MESSAGE_CHARS_MAX])
    return status_of(error.code, error.remark)
