"""Call the handlers of remoting requests on behalf of RocketMQ 5's clients.

Both protocols store and read messages in the same way, with the same checks, hooks, statistics,
traces and waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from broker_core.errors import CallStatusError, RequestRefusedError
from broker_core.grpc_messages.enums import Code
from broker_core.isolation import isolated
from broker_core.protocol.codes import SERIALIZE_ROCKETMQ
from broker_core.protocol.command import RemotingCommand

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from broker_core.clock import Clock
    from broker_core.grpc_services.remote_client import RemoteClient
    from broker_core.remoting.connection import Connection
    from broker_core.remoting.dispatch import Handler, OnRefused


class Handlers:
    """The handlers, without access control: check permissions first. Event loop only.

    `on_turn` is called with the time that each request held the loop.
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        on_refused: OnRefused,
        on_turn: Callable[[float], None],
        clock: Clock,
    ) -> None:
        self._on_turn = on_turn
        self._clock = clock
        self._handlers = {int(code): handler for code, handler in handlers.items()}
        self._on_refused = on_refused

    def ask(
        self, request: RemotingCommand, client: RemoteClient
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        """Return the response to a request.

        Raises:
            RequestRefusedError: the handler refuses it.
            CallStatusError: no handler exists for it.
        """
        handler = self._handlers.get(request.code)
        if handler is None:
            raise CallStatusError(
                Code.NOT_IMPLEMENTED, f"request code {request.code} isn't supported"
            )
        # Any type but JSON: handlers then don't encode a response that isn't sent.
        request.serialize_type = SERIALIZE_ROCKETMQ
        began = client.turn_began = self._clock.monotonic()
        try:
            answer = handler(request, cast("Connection", client))
        except RequestRefusedError as error:
            self._note(request, client, error)
            raise
        finally:
            self._on_turn(self._clock.monotonic() - began)
        if isinstance(answer, RemotingCommand):
            return answer
        return self._when_answered(request, client, cast("Awaitable[object]", answer))

    async def ask_waiting(self, request: RemotingCommand, client: RemoteClient) -> RemotingCommand:
        """Return the response to a request that may wait for messages.

        Raises:
            RequestRefusedError, CallStatusError: as for `ask`.
        """
        awaited = client.expect(request)
        try:
            asked = self.ask(request, client)
            answer: Any = asked if isinstance(asked, RemotingCommand) else await asked
            # A handler that lets a request wait returns None and sends the response later.
            return cast("RemotingCommand", await awaited if answer is None else answer)
        finally:
            client.forget(request)

    async def _when_answered(
        self, request: RemotingCommand, client: RemoteClient, answer: Awaitable[object] | None
    ) -> RemotingCommand:
        try:
            # None means that the response is sent with RemoteClient.send.
            return cast("RemotingCommand", None if answer is None else await answer)
        except RequestRefusedError as error:
            self._note(request, client, error)
            raise

    def _note(
        self, request: RemotingCommand, client: RemoteClient, error: RequestRefusedError
    ) -> None:
        with isolated("tracing a refused request", request.code):
            self._on_refused(request, cast("Connection", client), error, 0.0)
