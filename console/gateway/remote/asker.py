"""Requests to brokers or name servers, whose faults become the gateway's errors."""

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
from console.gateway.known import known_addresses

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection


class Asker:
    """Asks over one connection an address, signed by the console's account. One event loop.

    `handlers` serve what brokers ask of us on these connections; `on_lost` hears of each
    connection that has ended. `name_servers` may be asked whoever they are; a broker must be known.
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
            # Any client may have registered the other addresses with a name server.
            trusts=lambda each: each in self._name_servers or self._known.is_named(each),
        )
        self._client.on_connection_lost = on_lost

    async def __call__(
        self, address: str, command: RemotingCommand, timeout_s: float | None = None
    ) -> RemotingCommand:
        """Return the answer, whatever its code.

        Raises:
            UnconfirmedBrokerError: the address is not known; it was asked nothing.
            BrokerDownError: no connection, or no answer in time.
            UnreadableAnswerError: the peer does not speak the protocol.
        """
        self._require_known(address)
        timeout_s = timeout_s or self._timeout_s
        try:
            return await self._client.request(address, command, timeout_s)
        except RemotingTimeoutError as error:
            reason = _("no answer within %(seconds)g seconds") % {"seconds": timeout_s}
            raise BrokerDownError(address, reason) from error
        except RemotingConnectError as error:
            raise BrokerDownError(address, reason_of(error, address)) from error
        except RemotingError as error:
            raise BrokerDownError(address, _("the connection broke off")) from error
        except (FrameError, ValueError) as error:
            raise UnreadableAnswerError(address, str(command.code), str(error)) from error

    async def oneway(self, address: str, command: RemotingCommand) -> None:
        """Send a request that is not answered.

        Raises:
            UnconfirmedBrokerError: the address is not known; it was sent nothing.
            BrokerDownError: no connection.
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
    """Return why there is no connection, without the address that the sentence around it names."""
    text = str(error).removesuffix(".")
    return text.replace(f" to {address}", "").removeprefix("no connection: ")
