"""Limits of the bodies that a handler reads as a whole, blocking the event loop.

Differs: RocketMQ reads a body of any length. A frame may have 16 MiB, and decoding that much
JSON takes a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.errors import RequestRefusedError
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.remoting.overload import PULL_CODES, SEND_CODES, TRANSACTION_CODES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.remoting.dispatch import Answer, Handler

MIB = 1 << 20
BODY_BYTES_MAX = MIB
PROPERTIES_BYTES_MAX = 32 * 1024
"""Limit of a body of Java properties: 300 keys take a third of it, and each line takes 2 µs."""
CLIENT_CODES = frozenset(
    {
        RequestCode.HEART_BEAT,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.CHECK_CLIENT_CONFIG,
    }
)
"""Requests whose bodies clientBodyBytesMax limits."""
PROPERTIES_CODES = frozenset({RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG})
MESSAGE_CODES = frozenset(
    {
        *SEND_CODES,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.REGISTER_BROKER,
    }
)
"""Bodies without a limit here: maxMessageSize limits messages, and steps read registrations."""
HEADER_CODES = frozenset(
    {
        *PULL_CODES,
        *TRANSACTION_CODES,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
    }
)
"""Frequent requests without a check, because their handlers don't read a body."""


def bounded(
    handlers: Mapping[int, Handler], client_bytes_max: Callable[[], int] = lambda: BODY_BYTES_MAX
) -> dict[int, Handler]:
    """Wrap the handlers so that they refuse a body above its limit before reading it."""
    return {
        code: each
        if code in MESSAGE_CODES or code in HEADER_CODES
        else _bounded(each, code, client_bytes_max)
        for code, each in handlers.items()
    }


def _bounded(handler: Handler, code: int, client_bytes_max: Callable[[], int]) -> Handler:
    is_clients = code in CLIENT_CODES
    bytes_max = PROPERTIES_BYTES_MAX if code in PROPERTIES_CODES else BODY_BYTES_MAX

    def serve(request: RemotingCommand, connection: Connection) -> Answer | Awaitable[Answer]:
        size = len(request.body)
        most = client_bytes_max() if is_clients else bytes_max
        if size > most:
            bound = f"clientBodyBytesMax={most}" if is_clients else str(most)
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"the request's body has {size} bytes, more than {bound}",
            )
        return handler(request, connection)

    return serve
