"""Telemetry: the stream on which a client and the broker exchange settings and commands.

Source: proxy/grpc/v2/client/ClientActivity.java telemetry (5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.errors import (
    AccessRefusedError,
    CallRefusedError,
    CallStatusError,
    RequestRefusedError,
)
from broker_core.grpc_messages.clients import TelemetryCommand
from broker_core.grpc_services.client_settings import complete_settings
from broker_core.grpc_services.clients import NO_DATA
from broker_core.grpc_services.request_bounds import THREADS, require_bounded
from broker_core.grpc_services.statuses import OK, status_of_error
from broker_core.http2.codes import GrpcStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from broker_core.grpc_messages.clients import Settings
    from broker_core.grpc_messages.codec import Codec
    from broker_core.grpc_services.callers import CallAccess, Caller
    from broker_core.grpc_services.clients import Clients
    from broker_core.http2.call import Call
    from broker_core.metadata.subscription_groups import SubscriptionGroups

    Spawn = Callable[[Coroutine[object, object, None]], object]

FAILED = "process client telemetryCommand failed. "


class Telemetry:
    """Starts the streams of clients. Event loop only."""

    def __init__(
        self,
        clients: Clients,
        access: CallAccess,
        groups: SubscriptionGroups,
        codec: Codec,
        caller_of: Callable[[Call], Caller],
        spawn: Spawn,
    ) -> None:
        self.clients = clients
        self.groups = groups
        self.codec = codec
        self.spawn = spawn
        self._access = access
        self._caller_of = caller_of

    def begin(self, call: Call) -> TelemetryStream:
        """Return the broker's side of a stream.

        Raises:
            CallRefusedError: the client isn't allowed to open a stream.
        """
        try:
            caller = self._caller_of(call)
            self._access.require(caller, [])
        except AccessRefusedError as error:
            raise CallRefusedError(GrpcStatus.UNAUTHENTICATED, error.remark or "") from error
        except CallStatusError as error:
            raise CallRefusedError(GrpcStatus.INVALID_ARGUMENT, str(error)) from error
        return TelemetryStream(self, caller)


class TelemetryStream:
    """One client's stream."""

    __slots__ = ("_caller", "_send_command", "_telemetry")

    def __init__(self, telemetry: Telemetry, caller: Caller) -> None:
        self._telemetry = telemetry
        self._caller = caller
        call, encode = caller.call, telemetry.codec.encode

        def send_command(command: TelemetryCommand) -> None:
            call.send(encode(command))

        self._send_command = send_command
        call.on_cancel = self._ended

    def message_received(self, message: bytes) -> None:
        """Handle settings, or the answer to a question."""
        require_bounded(message, THREADS)
        command = self._telemetry.codec.decode(TelemetryCommand, message)
        client = self._caller.client
        if command.settings is not None:
            self._register(command.settings)
        elif command.thread_stack_trace is not None:
            trace = command.thread_stack_trace
            client.answered(trace.nonce, command.status, trace.thread_stack_trace or "")
        elif command.verify_message_result is not None:
            client.answered(command.verify_message_result.nonce, command.status)

    def half_closed(self) -> None:
        """End the stream, because the client has finished sending."""
        self._ended()
        self._caller.call.end()

    def _register(self, settings: Settings) -> None:
        try:
            waiting = self._telemetry.clients.register(self._caller, settings)
        except (CallStatusError, RequestRefusedError) as error:
            self._refuse(error)
            return
        if waiting is None:
            self._answer(settings)
        else:
            self._telemetry.spawn(self._answer_later(settings, waiting))

    async def _answer_later(self, settings: Settings, waiting: Awaitable[object]) -> None:
        try:
            await waiting
        except (CallStatusError, RequestRefusedError) as error:
            self._refuse(error)
        else:
            self._answer(settings)

    def _answer(self, settings: Settings) -> None:
        client = self._caller.client
        client.send_command = self._send_command
        client.end_stream = self._caller.call.end
        self._send_command(
            TelemetryCommand(OK, complete_settings(settings, self._telemetry.groups))
        )

    def _refuse(self, error: CallStatusError | RequestRefusedError) -> None:
        self._ended()
        status = status_of_error(error)
        grpc_status = (
            GrpcStatus.UNAUTHENTICATED
            if isinstance(error, AccessRefusedError)
            else GrpcStatus.INVALID_ARGUMENT
        )
        text = status.message
        self._caller.call.fail(grpc_status, text if text == NO_DATA else FAILED + text)

    def _ended(self) -> None:
        client = self._caller.client
        if client.send_command is self._send_command:
            client.send_command = None
            client.end()
