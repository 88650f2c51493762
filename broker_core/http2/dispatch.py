"""Turn the fields of a request into a call, and each message into a handler's answer.

Exceptions become gRPC statuses only here.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from broker_core.errors import CallRefusedError, ProtobufError
from broker_core.http2 import frames
from broker_core.http2.codes import ErrorCode, GrpcStatus
from broker_core.http2.grpc_framing import (
    CONTENT_TYPE,
    IDENTITY_ONLY,
    only_block,
    timeout_s,
)
from broker_core.http2.routes import BIDI, UNARY

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from broker_core.http2.call import Call
    from broker_core.http2.connection import Connection
    from broker_core.http2.routes import Route

logger = logging.getLogger(__name__)

POST_ONLY = "this port serves gRPC: send a POST with content-type application/grpc"
NOT_GRPC = "the content-type is not application/grpc"


def route_of(connection: Connection, stream_id: int, headers: dict[str, str]) -> Route | None:
    """Return the method that a request calls, or answer with the reason and return None."""
    route = connection.wire.routes.get(headers[":path"])
    content_type = headers.get("content-type", "")
    if (
        route is not None
        and headers[":method"] == "POST"
        and (
            content_type == CONTENT_TYPE
            or content_type.startswith((CONTENT_TYPE + "+proto", CONTENT_TYPE + ";"))
        )
    ):
        return route
    if headers[":method"] != "POST":
        block = only_block(GrpcStatus.UNIMPLEMENTED, POST_ONLY, 405)
    elif not content_type.startswith(CONTENT_TYPE):
        block = only_block(GrpcStatus.UNKNOWN, NOT_GRPC, 415)
    elif route is not None:
        block = only_block(GrpcStatus.UNKNOWN, "only protobuf messages are supported", 415)
    else:
        method = headers[":path"].removeprefix("/")
        block = only_block(GrpcStatus.UNIMPLEMENTED, f"Method not found: {method}")
    connection.outbox.put(frames.headers(stream_id, block, ends=True))
    return None


def begin(call: Call) -> None:
    """Read the fields of a new call and start a conversation."""
    headers = call.headers
    try:
        timeout = headers.get("grpc-timeout")
        if timeout is not None:
            call.deadline = call.received_at + timeout_s(timeout)
        if headers.get("grpc-encoding", "identity") != "identity":
            says = f"grpc-encoding {headers['grpc-encoding']} is not supported, only identity"
            block = only_block(GrpcStatus.UNIMPLEMENTED, says) + IDENTITY_ONLY
            call.connection.outbox.end(call, block)
            return
        if call.route.kind == BIDI:
            call.conversation = call.route.handler(call)
            wait(call)
    except Exception as error:  # noqa: BLE001
        refuse(call, error)


def dispatch(call: Call, message: bytes) -> None:
    """Serve the only message of a request."""
    try:
        answer = call.route.handler(call, message)
    except MemoryError:
        # The work may be half done, so the connection ends without an answer.
        raise
    except Exception as error:  # noqa: BLE001
        # One bad request must not end the connection.
        refuse(call, error)
        return
    if type(answer) is bytes:
        call.answer(answer)
    else:
        wait_for(call, answer)


def wait_for(call: Call, answer: Awaitable[Any] | None) -> None:
    """Wait for an awaitable answer; with None the handler answers later."""
    if answer is not None:
        connection = call.connection
        connection.wire.owner.spawn(_finish(call, answer), name=f"answer to {call.route.path}")
    wait(call)


def message_received(call: Call, message: bytes) -> None:
    """Pass the next message to a conversation."""
    assert call.conversation is not None
    try:
        call.conversation.message_received(message)
    except Exception as error:  # noqa: BLE001
        refuse(call, error)


def half_closed(call: Call) -> None:
    """Notify a conversation that the client has finished sending."""
    assert call.conversation is not None
    try:
        call.conversation.half_closed()
    except Exception as error:  # noqa: BLE001
        refuse(call, error)


def cancelled(call: Call) -> None:
    """Notify the handler that its call has ended."""
    on_cancel, call.on_cancel = call.on_cancel, None
    if on_cancel is None:
        return
    try:
        on_cancel()
    except Exception:
        # The handler's resources leak; other calls go on.
        logger.exception("gRPC cleanup failed path=%s", call.route.path)


def give_up(call: Call, status: int, message: str) -> None:
    """End a call for its handler, which may still be working or waiting for the client."""
    cancelled(call)
    if call.queue:
        # Queued data would delay the status.
        call.connection.requests.cancel(call, ErrorCode.CANCEL)
    else:
        call.fail(status, message)


def refuse(call: Call, error: Exception) -> None:
    """End a call with the status for an error."""
    if isinstance(error, CallRefusedError):
        call.fail(error.status, error.message)
    elif isinstance(error, ProtobufError):
        call.fail(GrpcStatus.INTERNAL, f"invalid protobuf message: {error}")
    else:
        logger.error("gRPC call failed path=%s", call.route.path, exc_info=error)
        # No details that would help an attacker.
        call.fail(GrpcStatus.INTERNAL, "internal error; see the broker's log")


def wait(call: Call) -> None:
    """Watch the deadline of a call that hasn't been answered yet."""
    if call.is_open and call.deadline is not None:
        call.has_timer = True
        call.connection.wire.deadlines.add(call)


async def _finish(call: Call, answer: Awaitable[Any]) -> None:
    try:
        message = await answer
        if call.route.kind == UNARY:
            call.answer(message)
        else:
            call.end()
    except Exception as error:  # noqa: BLE001
        refuse(call, error)
