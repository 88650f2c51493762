"""Refuse the requests that a slave doesn't serve, before their handlers run.

Source: broker/processor/AdminBrokerProcessor.java validateSlave (4.9.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.errors import RequestRefusedError
from broker_core.protocol.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from broker_core.ha.role import Role
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.remoting.dispatch import Answer, Handler

_CHANGE = (
    ResponseCode.SYSTEM_ERROR,
    "Can't modify topic or subscription group from slave broker, please execute it from master "
    "broker.",
)
_SLAVES_FILE = (
    ResponseCode.SYSTEM_ERROR,
    "this broker is a slave: change delay offsets and filters on its master",
)
_LEASE = (
    ResponseCode.SYSTEM_ERROR,
    "this broker is a slave: receive and acknowledge messages on its master",
)
MASTERS_OWN: Mapping[int, tuple[ResponseCode, str]] = {
    RequestCode.UPDATE_AND_CREATE_TOPIC: _CHANGE,
    RequestCode.DELETE_TOPIC_IN_BROKER: _CHANGE,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _CHANGE,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _CHANGE,
    RequestCode.UPDATE_DELAY_OFFSET: _SLAVES_FILE,
    RequestCode.UPDATE_CONSUMER_FILTER: _SLAVES_FILE,
    RequestCode.DELETE_CONSUMER_FILTER: _SLAVES_FILE,
    RequestCode.POP_MESSAGE: _LEASE,
    RequestCode.ACK_MESSAGE: _LEASE,
    RequestCode.BATCH_ACK_MESSAGE: _LEASE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _LEASE,
    RequestCode.NOTIFICATION: _LEASE,
    RequestCode.SET_MESSAGE_REQUEST_MODE: _CHANGE,
}
"""Requests that only a master serves, with a slave's answer. The store refuses puts, and the
transaction processor refuses ends: the native turn serves them only if no wrapper surrounds them.
"""


def by_role(handlers: dict[int, Handler], role: Role) -> dict[int, Handler]:
    """Return the table with a slave's refusals in front of master-only handlers."""
    if MASTERS_OWN.keys().isdisjoint(handlers):
        return handlers
    return {
        code: _of_master(handler, role, *MASTERS_OWN[code]) if code in MASTERS_OWN else handler
        for code, handler in handlers.items()
    }


def _of_master(handler: Handler, role: Role, code: ResponseCode, remark: str) -> Handler:
    def serve(request: RemotingCommand, connection: Connection) -> Answer | Awaitable[Answer]:
        if role.is_slave:
            raise RequestRefusedError(code, remark)
        return handler(request, connection)

    return serve
