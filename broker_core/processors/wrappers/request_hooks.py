"""RequestHooks: extensions' RPC hooks around all handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.errors import AbortProcessError, RequestRefusedError
from broker_core.extensions.failures import ExtensionFailedError
from broker_core.processors.wrappers.hooks import as_failure, command_of
from broker_core.protocol.command import RemotingCommand
from broker_core.remoting.dispatch import refused

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from broker_core.extensions.failures import Failures
    from broker_core.extensions.loading import ActiveExtension
    from broker_core.extensions.rpc_hook import RPCHook
    from broker_core.remoting.connection import Connection
    from broker_core.remoting.dispatch import Answer, Handler


class RequestHooks:
    """The RPC hooks, around all handlers. Event loop only."""

    def __init__(self, hooks: tuple[ActiveExtension[RPCHook], ...], failures: Failures) -> None:
        self._hooks = hooks
        self._failures = failures

    def around(self, handlers: dict[int, Handler]) -> dict[int, Handler]:
        """Return the table with the hooks around each handler."""
        return {code: self._around(handler) for code, handler in handlers.items()}

    def _around(self, handler: Handler) -> Handler:
        def serve(request: RemotingCommand, connection: Connection) -> Answer | Awaitable[Answer]:
            remote_address = connection.remote_address
            request = request.with_texts()
            for label, hook in self._hooks:
                try:
                    self._failures.call(label, hook.do_before_request, remote_address, request)
                except ExtensionFailedError:
                    continue
                except AbortProcessError as refusal:
                    raise as_failure(refusal) from None
            try:
                answer = handler(request, connection)
            except RequestRefusedError as refusal:
                answer = refused(request, refusal)
            if answer is None or isinstance(answer, RemotingCommand | bytes):
                return self._after(remote_address, request, answer)
            return self._later(remote_address, request, answer)

        return serve

    async def _later(
        self, remote_address: str, request: RemotingCommand, awaited: Awaitable[Answer]
    ) -> Answer:
        try:
            answer = await awaited
        except RequestRefusedError as refusal:
            answer = refused(request, refusal)
        return self._after(remote_address, request, answer)

    def _after(self, remote_address: str, request: RemotingCommand, answer: Answer) -> Answer:
        response = command_of(answer)
        for label, hook in self._hooks:
            self._failures.attempt(label, hook.do_after_response, remote_address, request, response)
        return response
