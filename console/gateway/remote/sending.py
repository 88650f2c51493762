"""SendingGateway over the remoting protocol."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

from broker_core.message import names
from broker_core.message.sys_flag import TRANSACTION_PREPARED_TYPE
from console.gateway.answers import MessageQueue
from console.gateway.errors import GatewayError
from console.gateway.outgoing import PRODUCER_GROUP, Sending, Sent
from console.gateway.requests import messages, sending
from console.lib.moment import now_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from console.gateway.outgoing import Delivered, Half, Halves, NewMessage, Timers
    from console.gateway.remote.brokers import RemoteBrokers

SENDING_S = 8.0
"""Shorter than the operation timeout, so that partial results can be reported."""
CLIENT_S = 9.0
UNIQ_KEY_BYTES = 16


class RemoteSending:
    """Thread-safe; calls block until the brokers answer."""

    def __init__(self, brokers: RemoteBrokers) -> None:
        self._brokers = brokers

    def send(self, outgoing: Sequence[NewMessage]) -> Sending:
        return self._brokers.run(self._send(outgoing))

    def end(self, half: Sent, *, is_commit: bool) -> None:
        self._brokers.run(self._end(half, is_commit=is_commit))

    def undecided(self, broker_name: str, from_offset: int = 0) -> Halves | None:
        return self._brokers.run(self._undecided(broker_name, from_offset))

    def timers(self, broker_name: str, key: str = "") -> Timers | None:
        return self._brokers.run(self._timers(broker_name, key))

    def decide(self, half: Half, *, is_commit: bool) -> None:
        self._brokers.run(self._decide(half, is_commit=is_commit))

    def check(self, half: Half) -> None:
        self._brokers.run(self._check(half))

    def deliver(
        self, broker_name: str, offset_msg_id: str, group: str, client_id: str
    ) -> Delivered:
        return self._brokers.run(self._deliver(broker_name, offset_msg_id, group, client_id))

    async def _send(self, outgoing: Sequence[NewMessage]) -> Sending:
        """Send sequentially, so that the queue has the order of the list."""
        sent: list[Sent] = []
        try:
            async with asyncio.timeout(SENDING_S):
                addresses = await self._addresses()
                for message in outgoing:
                    address = self._address(addresses, message.queue.broker_name)
                    sent.append(await self._put(address, message))
        except GatewayError as error:
            return Sending(tuple(sent), error)
        except TimeoutError:
            return Sending(
                tuple(sent),
                GatewayError(_("The time limit was reached before all messages were sent.")),
            )
        return Sending(tuple(sent))

    async def _put(self, address: str, message: NewMessage) -> Sent:
        uniq_key = secrets.token_hex(UNIQ_KEY_BYTES).upper()
        carried = {**message.properties, names.PROPERTY_UNIQ_KEY: uniq_key}
        carried[names.PROPERTY_WAIT_STORE_MSG_OK] = "true"
        if message.is_half:
            carried[names.PROPERTY_TRANSACTION_PREPARED] = "true"
            carried[names.PROPERTY_PRODUCER_GROUP] = PRODUCER_GROUP
        stored = await messages.put(
            self._brokers.ask,
            address,
            message.queue,
            message.body,
            carried,
            PRODUCER_GROUP,
            now_ms(),
            TRANSACTION_PREPARED_TYPE if message.is_half else 0,
        )
        queue = MessageQueue(message.queue.topic, message.queue.broker_name, stored.queue_id)
        return Sent(
            queue, stored.queue_offset, stored.offset_msg_id, uniq_key, stored.transaction_id
        )

    async def _end(self, half: Sent, *, is_commit: bool) -> None:
        address = self._address(await self._addresses(), half.queue.broker_name)
        await sending.end_transaction(self._brokers.ask, address, half, is_commit=is_commit)

    async def _undecided(self, broker_name: str, from_offset: int) -> Halves | None:
        address = self._address(await self._addresses(), broker_name)
        return await sending.half_messages(self._brokers.ask, address, broker_name, from_offset)

    async def _timers(self, broker_name: str, key: str) -> Timers | None:
        address = self._address(await self._addresses(), broker_name)
        return await sending.timers(self._brokers.ask, address, key)

    async def _decide(self, half: Half, *, is_commit: bool) -> None:
        address = self._address(await self._addresses(), half.broker_name)
        await sending.decide(self._brokers.ask, address, half, is_commit=is_commit)

    async def _check(self, half: Half) -> None:
        address = self._address(await self._addresses(), half.broker_name)
        await sending.check_half(self._brokers.ask, address, half)

    async def _deliver(
        self, broker_name: str, offset_msg_id: str, group: str, client_id: str
    ) -> Delivered:
        address = self._address(await self._addresses(), broker_name)
        return await sending.consume_directly(
            self._brokers.ask, address, group, client_id, offset_msg_id, CLIENT_S
        )

    async def _addresses(self) -> dict[str, str]:
        return {node.broker_name: node.address for node in await self._brokers.masters()}

    def _address(self, addresses: dict[str, str], broker_name: str) -> str:
        if broker_name not in addresses:
            raise GatewayError(
                _("No broker named %(names)s is registered.") % {"names": broker_name}
            )
        return addresses[broker_name]
