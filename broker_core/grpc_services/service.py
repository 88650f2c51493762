"""The table of RPC methods, and the code that all calls share.

Every call is decoded, its caller is identified, and its answer always has a status.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from broker_core.errors import (
    CallRefusedError,
    CallStatusError,
    ProtobufError,
    RequestRefusedError,
)
from broker_core.grpc_messages.clients import (
    HeartbeatRequest,
    HeartbeatResponse,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
)
from broker_core.grpc_messages.enums import Code
from broker_core.grpc_messages.receiving import (
    AckMessageRequest,
    AckMessageResponse,
    ChangeInvisibleDurationRequest,
    ChangeInvisibleDurationResponse,
    ForwardMessageToDeadLetterQueueRequest,
    ForwardMessageToDeadLetterQueueResponse,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
)
from broker_core.grpc_messages.routing import (
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    QueryRouteRequest,
    QueryRouteResponse,
)
from broker_core.grpc_messages.sending import (
    EndTransactionRequest,
    EndTransactionResponse,
    RecallMessageRequest,
    RecallMessageResponse,
    SendMessageRequest,
    SendMessageResponse,
)
from broker_core.grpc_messages.shared import Status
from broker_core.grpc_services.callers import caller_of, client_id_of
from broker_core.grpc_services.request_bounds import NONE, SENT_BODIES, require_bounded
from broker_core.grpc_services.statuses import status_of_error
from broker_core.http2.methods import Bidi, Method, ServerStreaming, Unary
from broker_core.http2.reflection import reflection_methods

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.grpc_messages.codec import Codec, ProtoMessage
    from broker_core.grpc_services.callers import Caller
    from broker_core.grpc_services.clients import Clients
    from broker_core.grpc_services.leases import LeaseService
    from broker_core.grpc_services.receiving import ReceivingService
    from broker_core.grpc_services.routes import RouteService
    from broker_core.grpc_services.sending import SendingService
    from broker_core.grpc_services.telemetry import Telemetry
    from broker_core.http2.call import Call

logger = logging.getLogger(__name__)

PATH = "/apache.rocketmq.v2.MessagingService/"
INTERNAL = Status(Code.INTERNAL_SERVER_ERROR, "internal error; see the broker's log")

Q = TypeVar("Q", bound="ProtoMessage")


class Services(NamedTuple):
    """The services that implement the RPCs."""

    clients: Clients
    telemetry: Telemetry
    routes: RouteService
    sending: SendingService
    receiving: ReceivingService
    leases: LeaseService


def methods(
    services: Services, codec: Codec, identify: Callable[[Call], Caller]
) -> dict[str, Method]:
    """Return the methods of the service, with reflection for tools."""

    def unary(
        kind: type[Q], answer: Callable[..., Any], serve: Callable[[Caller, Q], Any]
    ) -> Unary:
        return Unary(_unary(codec, identify, kind, answer, serve))

    served: dict[str, Method] = {
        PATH + "QueryRoute": unary(
            QueryRouteRequest, QueryRouteResponse, services.routes.query_route
        ),
        PATH + "QueryAssignment": unary(
            QueryAssignmentRequest, QueryAssignmentResponse, services.routes.query_assignment
        ),
        PATH + "Heartbeat": unary(HeartbeatRequest, HeartbeatResponse, services.clients.heartbeat),
        PATH + "NotifyClientTermination": unary(
            NotifyClientTerminationRequest,
            NotifyClientTerminationResponse,
            services.clients.notify_termination,
        ),
        PATH + "SendMessage": unary(SendMessageRequest, SendMessageResponse, services.sending.send),
        PATH + "EndTransaction": unary(
            EndTransactionRequest, EndTransactionResponse, services.sending.end_transaction
        ),
        PATH + "RecallMessage": unary(
            RecallMessageRequest, RecallMessageResponse, services.sending.recall
        ),
        PATH + "ReceiveMessage": ServerStreaming(_receive(codec, identify, services.receiving)),
        PATH + "AckMessage": unary(AckMessageRequest, AckMessageResponse, services.leases.ack),
        PATH + "ChangeInvisibleDuration": unary(
            ChangeInvisibleDurationRequest,
            ChangeInvisibleDurationResponse,
            services.leases.change,
        ),
        PATH + "ForwardMessageToDeadLetterQueue": unary(
            ForwardMessageToDeadLetterQueueRequest,
            ForwardMessageToDeadLetterQueueResponse,
            services.leases.forward,
        ),
        PATH + "Telemetry": Bidi(services.telemetry.begin),
    }
    return {**served, **reflection_methods(served)}


def identifier(clients: Clients) -> Callable[[Call], Caller]:
    """Return a function that identifies the caller of a call.

    It raises CallStatusError for a call without a client ID.
    """

    def identify(call: Call) -> Caller:
        return caller_of(call, clients.of(call, client_id_of(call)))

    return identify


def status_of_failure(error: Exception, what: str) -> Status:
    """Return the status of a call that was refused or failed; log internal errors."""
    if isinstance(error, CallStatusError | RequestRefusedError):
        return status_of_error(error)
    logger.error("gRPC call failed call=%s", what, exc_info=error)
    return INTERNAL


def _unary(
    codec: Codec,
    identify: Callable[[Call], Caller],
    kind: type[Q],
    answer: Callable[..., Any],
    serve: Callable[[Caller, Q], Any],
) -> Callable[[Call, bytes], bytes | Awaitable[bytes]]:
    large = SENT_BODIES if kind is SendMessageRequest else NONE

    def failed(error: Exception) -> bytes:
        return codec.encode(answer(status_of_failure(error, kind.__name__)))

    async def later(waiting: Awaitable[Any]) -> bytes:
        try:
            return codec.encode(await waiting)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001
            return failed(error)

    def handle(call: Call, message: bytes) -> bytes | Awaitable[bytes]:
        try:
            require_bounded(message, large)
            served = serve(identify(call), codec.decode(kind, message))
            if isinstance(served, Awaitable):
                return later(served)
            return codec.encode(served)
        except (MemoryError, ProtobufError, CallRefusedError):
            raise
        except Exception as error:  # noqa: BLE001
            # Every answer must have a status, even after an unexpected error.
            return failed(error)

    return handle


def _receive(
    codec: Codec, identify: Callable[[Call], Caller], receiving: ReceivingService
) -> Callable[[Call, bytes], Awaitable[None]]:
    async def handle(call: Call, message: bytes) -> None:
        try:
            require_bounded(message, NONE)
            request = codec.decode(ReceiveMessageRequest, message)
            await receiving.receive(identify(call), request)
        except (MemoryError, ProtobufError, CallRefusedError):
            raise
        except Exception as error:  # noqa: BLE001
            status = status_of_failure(error, ReceiveMessageRequest.__name__)
            call.send(codec.encode(ReceiveMessageResponse(status=status)))

    return handle
