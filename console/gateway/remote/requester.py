"""Requests to brokers and name servers, with failures mapped to gateway errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

from broker_core.errors import (
    FrameError,
    RemotingConnectError,
    RemotingError,
    RemotingTimeoutError,
)
from broker_core.remoting.client import RemotingClient
from console.gateway.credentials import broker_signer
from console.gateway.errors import (
    BrokerDownError,
    UnconfirmedBrokerError,
    UnreadableAnswerError,
)
from console.gateway.known_addresses import known_addresses

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection


class Requester:
    """Sends signed requests over one connection per address. One event loop.

    `handlers` serve requests that brokers send on these connections; `on_lost` is called for each
    lost connection. Addresses in `name_servers` are always allowed; brokers must be known.
    """

    def __init__(
        self,
        timeout_s: float,
        handlers: Mapping[int, Callable[[RemotingCommand, Connection], None]] | None = None,
        on_lost: Callable[[Connection], None] | None = None,
        name_servers: Sequence[str] = (),
    ) -> None:
        self._timeout_s = timeout_s
        self._name_servers = frozenset(name_servers)
        self._known = known_addresses()
        self._client = RemotingClient(
            handlers=handlers,
            signer=broker_signer(),
            # Any client may have registered other addresses with a name server.
            trusts=lambda each: each in self._name_servers or self._known.is_named(each),
        )
        self._client.on_connection_lost = on_lost

    async def __call__(
        self, address: str, command: RemotingCommand, timeout_s: float | None = None
    ) -> RemotingCommand:
        """Return the answer, whatever its code.

        Raises:
            UnconfirmedBrokerError: the address isn't known; no request was sent.
            BrokerDownError: the connection failed, or there was no answer in time.
            UnreadableAnswerError: the peer doesn't speak the protocol.
        """
        self._require_known(address)
        timeout_s = timeout_s or self._timeout_s
        try:
            return await self._client.request(address, command, timeout_s)
        except RemotingTimeoutError as error:
            reason = _("no response within %(seconds)g seconds") % {"seconds": timeout_s}
            raise BrokerDownError(address, reason) from error
        except RemotingConnectError as error:
            raise BrokerDownError(address, reason_of(error, address)) from error
        except RemotingError as error:
            raise BrokerDownError(address, _("the connection was closed")) from error
        except (FrameError, ValueError) as error:
            raise UnreadableAnswerError(address, str(command.code), str(error)) from error

    async def oneway(self, address: str, command: RemotingCommand) -> None:
        """Send a request that isn't answered.

        Raises:
            UnconfirmedBrokerError: the address isn't known; no request was sent.
            BrokerDownError: the connection failed.
        """
        self._require_known(address)
        try:
            await self._client.oneway(address, command, self._timeout_s)
        except RemotingConnectError as error:
            raise BrokerDownError(address, reason_of(error, address)) from error

    def may_ask(self, address: str) -> bool:
        return address in self._name_servers or address in self._known

    async def shutdown(self) -> None:
        await self._client.shutdown()

    def _require_known(self, address: str) -> None:
        if not self.may_ask(address):
            raise UnconfirmedBrokerError(address)


def reason_of(error: RemotingConnectError, address: str) -> str:
    """Return the connection error without the address, which the surrounding sentence names."""
    text = str(error).removesuffix(".")
    return text.replace(f" to {address}", "").removeprefix("no connection: ")
