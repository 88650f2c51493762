"""The guard before all handlers: each request is authorised here and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.remoting.dispatch import Answer, Handler


class Gate(Protocol):
    """Who lets requests pass: the Authorizer, or it among other validators."""

    def authorize(self, request: RemotingCommand, remote_address: str) -> None: ...


def guarded(handlers: Mapping[int, Handler], authorizer: Gate) -> dict[int, Handler]:
    """Return the table with the authorizer before each handler.

    The table, not the dispatcher, is what changes: without access control a request costs nothing
    more, and a code that has no handler is answered 3 to anybody.
    """
    return {code: _guarded(handler, authorizer) for code, handler in handlers.items()}


def _guarded(handler: Handler, authorizer: Gate) -> Handler:
    authorize = authorizer.authorize

    def serve(request: RemotingCommand, connection: Connection) -> Answer | Awaitable[Answer]:
        authorize(request, connection.remote_address)
        return handler(request, connection)

    return serve
