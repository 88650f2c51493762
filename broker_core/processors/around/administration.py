"""Administration at a listener of its own: what the public ports refuse then, and where it is."""

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
"""What brokers ask of a name server: from their own machines, whoever must sign it."""
ADMINISTRATIVE = (
    frozenset(code for code, rule in RULES.items() if rule.is_admin or rule.is_private)
    - BROKERS_OWN
)


def without_administration(handlers: Mapping[int, Handler], listener: str) -> dict[int, Handler]:
    """Return a public port's table, which says where to administer instead of doing it."""

    def refuse(request: RemotingCommand, _: Connection) -> Answer:
        raise RequestRefusedError(
            ResponseCode.NO_PERMISSION,
            f"request code {request.code} is administrative: this port does not serve it, the "
            f"administration listener at {listener} does (adminListenAddress)",
        )

    return {code: refuse if code in ADMINISTRATIVE else each for code, each in handlers.items()}


def routes_to(listener: str, handlers: Mapping[int, Handler], public: str) -> dict[int, Handler]:
    """Return a name server's table for the administration listener.

    Its routes lead to the listener in place of the broker's public address, so that a tool that is
    given the listener as its name server administers the broker there.
    """
    before, after = f'"{public}"'.encode(), f'"{listener}"'.encode()

    def led(handler: Handler) -> Handler:
        def serve(request: RemotingCommand, connection: Connection) -> Answer:
            answer = handler(request, connection)
            assert isinstance(answer, RemotingCommand)
            answer.body = answer.body.replace(before, after)
            return answer

        return serve

    leading = (RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO)
    return {code: led(each) if code in leading else each for code, each in handlers.items()}
