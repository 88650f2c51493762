"""RepairGateway over the remoting protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

from console.gateway.errors import BrokerDownError, GatewayError, NameServerDownError
from console.gateway.requests import messages, repair

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.gateway.answers import MessageQueue
    from console.gateway.copies import Copies, MessageCopy
    from console.gateway.remote.brokers import RemoteBrokers
    from console.lib.stored import BrokerQueue


class RemoteRepair:
    """Thread-safe; calls block until the brokers answer."""

    def __init__(self, brokers: RemoteBrokers) -> None:
        self._brokers = brokers

    def copies(self, topic: str, queue: BrokerQueue, offset: int, count: int) -> Copies:
        return self._brokers.run(self._copies(topic, queue, offset, count))

    def writable(self, topic: str) -> tuple[MessageQueue, ...]:
        return self._brokers.run(self._writable(topic))

    def resend(self, copy: MessageCopy, queue: MessageQueue, properties: Mapping[str, str]) -> int:
        return self._brokers.run(self._resend(copy, queue, properties))

    async def _copies(self, topic: str, queue: BrokerQueue, offset: int, count: int) -> Copies:
        return await repair.copies(
            self._brokers.ask,
            await self._address_of(queue.broker_name),
            queue.broker_name,
            topic,
            queue.queue_id,
            offset,
            count,
        )

    async def _writable(self, topic: str) -> tuple[MessageQueue, ...]:
        reasons = []
        for address in self._brokers.name_servers:
            try:
                found = await messages.route(self._brokers.ask, address, topic)
            except BrokerDownError as error:
                reasons.append(error.reason)
                continue
            return () if found is None else found[0].write_queues
        raise NameServerDownError(list(self._brokers.name_servers), "; ".join(sorted(set(reasons))))

    async def _resend(
        self, copy: MessageCopy, queue: MessageQueue, properties: Mapping[str, str]
    ) -> int:
        address = await self._address_of(queue.broker_name)
        return await repair.resend(self._brokers.ask, address, queue, copy, properties)

    async def _address_of(self, broker_name: str) -> str:
        for node in await self._brokers.masters():
            if node.broker_name == broker_name:
                return node.address
        raise GatewayError(_("No broker named %(names)s is registered.") % {"names": broker_name})
