"""The guard before all handlers: each request is authorised here by what it says.

A processor whose request leads to something that it does not name asks the same gate once more,
with what that needs (`Rule.found`).
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
    """What lets a request pass: the Authorizer, or all access validators."""

    def authorize(self, request: RemotingCommand, remote_address: str) -> None:
        """Raise RequestRefusedError unless the request may be made."""
        ...

    def require(self, request: RemotingCommand, remote_address: str, needs: Sequence[Need]) -> None:
        """Raise RequestRefusedError unless a request that passed may act on what it led to."""
        ...

    def permits(self, access_key: str | None, remote_address: str, need: Need) -> bool:
        """Return whether the broker may tell a client something that it has not asked for."""
        ...


ACCOUNT = "account"
"""The attribute of a connection whose client the broker speaks to by itself: its access key."""


def guarded(handlers: Mapping[int, Handler], authorizer: Gate) -> dict[int, Handler]:
    """Return the table with the authorizer before each handler.

    The table changes, not the dispatcher: without access control a request costs nothing more.
    Anybody gets answer 3 to a code without a handler.
    """
    table = {code: _guarded(handler, authorizer) for code, handler in handlers.items()}
    if RequestCode.HEART_BEAT in table:
        table[RequestCode.HEART_BEAT] = _remembered(table[RequestCode.HEART_BEAT])
    return table


def guarded_by_rule(handlers: Mapping[int, Handler], authorizer: Gate) -> dict[int, Handler]:
    """Return the table with the authorizer before each handler whose code has a rule.

    The others are open to everybody.
    """
    ruled = {code: handler for code, handler in handlers.items() if code in RULES}
    return {**handlers, **guarded(ruled, authorizer)}


def _guarded(handler: Handler, authorizer: Gate) -> Handler:
    authorize = authorizer.authorize

    def serve(request: RemotingCommand, connection: Connection) -> Answer | Awaitable[Answer]:
        authorize(request, connection.remote_address)
        if not connection.is_signed_in:
            connection.sign_in()
        return handler(request, connection)

    return serve


def _remembered(handler: Handler) -> Handler:
    """Return the handler of heartbeats with what keeps a client's account at its connection.

    The handler may already have looked at the connection: it is the one that lets a request pass.
    """

    def serve(request: RemotingCommand, connection: Connection) -> Answer | Awaitable[Answer]:
        answer = handler(request, connection)
        connection.attributes[ACCOUNT] = request.ext_fields.get(ACCESS_KEY)
        return answer

    return serve
