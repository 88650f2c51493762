"""A separate listener for administration: the public ports then refuse it and name the listener."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.access.rules import RULES
from broker_core.errors import RequestRefusedError
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker_core.remoting.connection import Connection
    from broker_core.remoting.dispatch import Answer, Handler

BROKERS_OWN = frozenset(code for code, rule in RULES.items() if rule.is_broker)
"""Requests from brokers to a name server. They come from the brokers' own machines, even if signing
is required.
"""
ADMINISTRATIVE = (
    frozenset(code for code, rule in RULES.items() if rule.is_admin or rule.is_private)
    - BROKERS_OWN
)


def without_administration(handlers: Mapping[int, Handler], listener: str) -> dict[int, Handler]:
    """Return a public port's table, which refuses administration and names the listener."""

    def refuse(request: RemotingCommand, _: Connection) -> Answer:
        raise RequestRefusedError(
            ResponseCode.NO_PERMISSION,
            f"request code {request.code} is administrative and isn't allowed on this port; use "
            f"the administration listener at {listener} (adminListenAddress)",
        )

    return {code: refuse if code in ADMINISTRATIVE else each for code, each in handlers.items()}


def routes_to(listener: str, handlers: Mapping[int, Handler], public: str) -> dict[int, Handler]:
    """Return a name server's table for the administration listener.

    The routes contain the listener instead of the broker's public address, so that a tool that uses
    the listener as its name server administers the broker there.
    """
    before, after = f'"{public}"'.encode(), f'"{listener}"'.encode()

    def redirect(handler: Handler) -> Handler:
        def serve(request: RemotingCommand, connection: Connection) -> Answer:
            answer = handler(request, connection)
            assert isinstance(answer, RemotingCommand)
            answer.body = answer.body.replace(before, after)
            return answer

        return serve

    leading = (RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO)
    return {code: redirect(each) if code in leading else each for code, each in handlers.items()}
