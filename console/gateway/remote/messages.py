"""MessageGateway over the remoting protocol."""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

from broker_core.protocol.codes import RequestCode
from console.gateway.answers import TopicRoute
from console.gateway.errors import (
    BrokerDownError,
    GatewayError,
    NameServerDownError,
    UnconfirmedBrokerError,
)
from console.gateway.remote.requester import Requester
from console.gateway.requests import messages as requests

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from console.gateway.answers import Client, MessageQueue, OutgoingMessage, Pulled


class RemoteMessages:
    """Connects on first use. Bound to the event loop of its first call."""

    def __init__(self, name_servers: Sequence[str], timeout_s: float) -> None:
        self._name_servers = list(name_servers)
        self._requester = Requester(
            timeout_s,
            {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._members_changed},
            name_servers=name_servers,
        )
        self._addresses: dict[str, str] = {}  # by broker_name
        self._changed = asyncio.Event()
        self._uniq_prefix = f"{os.getpid() & 0xFFFF:04X}{secrets.token_hex(10).upper()}"
        self._uniq_counter = itertools.count(1)

    async def route(self, topic: str) -> TopicRoute | None:
        reasons = []
        for address in self._name_servers:
            try:
                found = await requests.route(self._requester, address, topic)
            except BrokerDownError as error:
                reasons.append(error.reason)
                continue
            if found is None:
                return None
            route, addresses = found
            known = {name: at for name, at in addresses.items() if self._requester.may_ask(at)}
            if addresses and not known:
                raise UnconfirmedBrokerError(min(addresses.values()))
            self._addresses |= known
            return TopicRoute(
                tuple(queue for queue in route.write_queues if queue.broker_name in known),
                tuple(queue for queue in route.read_queues if queue.broker_name in known),
            )
        raise NameServerDownError(self._name_servers, "; ".join(sorted(set(reasons))))

    async def send(self, queue: MessageQueue, message: OutgoingMessage, group: str) -> int:
        uniq_key = f"{self._uniq_prefix}{next(self._uniq_counter):08X}"[-32:]
        address = self._address_of(queue)
        return await requests.send(self._requester, address, queue, message, group, uniq_key)

    async def pull(
        self, queue: MessageQueue, group: str, queue_offset: int, sub_version: int
    ) -> Pulled:
        address = self._address_of(queue)
        return await requests.pull(
            self._requester, address, queue, group, queue_offset, sub_version
        )

    async def consumer_offset(self, queue: MessageQueue, group: str) -> int:
        return await requests.consumer_offset(
            self._requester, self._address_of(queue), queue, group
        )

    async def commit(self, queue: MessageQueue, group: str, queue_offset: int) -> None:
        command = requests.commit_offset(queue, group, queue_offset)
        await self._requester.oneway(self._address_of(queue), command)

    async def join(self, client: Client) -> None:
        for address in sorted(set(self._addresses.values())):
            await requests.heart_beat(self._requester, address, client)

    async def leave(self, client: Client) -> None:
        for address in sorted(set(self._addresses.values())):
            try:
                await requests.unregister(self._requester, address, client)
            except GatewayError:
                # A broker that is gone has forgotten its clients.
                continue

    async def members(self, queue: MessageQueue, group: str) -> tuple[str, ...]:
        return await requests.members(self._requester, self._address_of(queue), group)

    async def until_members_change(self) -> None:
        await self._changed.wait()
        self._changed.clear()

    async def close(self) -> None:
        await self._requester.shutdown()

    def _address_of(self, queue: MessageQueue) -> str:
        address = self._addresses.get(queue.broker_name)
        if address is None:
            raise GatewayError(
                _("No broker named %(names)s is registered.") % {"names": queue.broker_name}
            )
        return address

    def _members_changed(self, _command: RemotingCommand, _connection: Connection) -> None:
        self._changed.set()
