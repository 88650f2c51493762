"""The guard in front of all handlers: it authorizes each request by its fields.

When a request leads to a resource that it doesn't name, the processor asks the same gate again with
the permissions needed (`Rule.found`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker_core.access.rules import RULES
from broker_core.protocol.codes import RequestCode
from broker_core.protocol.signature import ACCESS_KEY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from broker_core.access.rules import Need
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.remoting.dispatch import Answer, Handler


class Gate(Protocol):
    """Authorizes requests: the Authorizer or all access validators."""

    def authorize(self, request: RemotingCommand, remote_address: str) -> None:
        """Raise RequestRefusedError unless the request is allowed."""
        ...

    def require(self, request: RemotingCommand, remote_address: str, needs: Sequence[Need]) -> None:
        """Raise RequestRefusedError unless an authorized request may act on the resource found."""
        ...

    def permits(self, access_key: str | None, remote_address: str, need: Need) -> bool:
        """Return whether the broker may send a client data that it didn't request."""
        ...


ACCOUNT = "account"
"""The connection attribute with the client's access key, used when the broker sends requests."""


def guard_handlers(handlers: Mapping[int, Handler], authorizer: Gate) -> dict[int, Handler]:
    """Return the table with the authorizer before each handler.

    The table changes, not the dispatcher, so without access control requests cost nothing extra.
    Any client gets response 3 for a code without a handler.
    """
    table = {code: _guarded(handler, authorizer) for code, handler in handlers.items()}
    if RequestCode.HEART_BEAT in table:
        table[RequestCode.HEART_BEAT] = _storing_account(table[RequestCode.HEART_BEAT])
    return table


def guard_by_rule(handlers: Mapping[int, Handler], authorizer: Gate) -> dict[int, Handler]:
    """Return the table with the authorizer before each handler whose code has a rule.

    All other handlers are open to everyone.
    """
    ruled = {code: handler for code, handler in handlers.items() if code in RULES}
    return {**handlers, **guard_handlers(ruled, authorizer)}


def _guarded(handler: Handler, authorizer: Gate) -> Handler:
    authorize = authorizer.authorize

    def serve(request: RemotingCommand, connection: Connection) -> Answer | Awaitable[Answer]:
        authorize(request, connection.remote_address)
        if not connection.is_signed_in:
            connection.sign_in()
        return handler(request, connection)

    return serve


def _storing_account(handler: Handler) -> Handler:
    """Return the heartbeat handler, extended to store a client's account on its connection.

    The wrapped handler may already use the connection, as it includes the authorization.
    """

    def serve(request: RemotingCommand, connection: Connection) -> Answer | Awaitable[Answer]:
        answer = handler(request, connection)
        connection.attributes[ACCOUNT] = request.ext_fields.get(ACCESS_KEY)
        return answer

    return serve
