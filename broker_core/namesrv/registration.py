"""BrokerRegistration: our broker tells name servers of itself.

Outside ones over the wire, the embedded one by a call. All of them at start, every period, at once
when a topic changes; at shutdown they are told to forget it.

Source: broker/out/BrokerOuterAPI.java, broker/BrokerController.java (4.9.7).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import msgspec

from broker_core.errors import RemotingError
from broker_core.message.topic_config import PERM_READ, PERM_WRITE, TopicConfig
from broker_core.protocol import java_json
from broker_core.protocol.bodies.registration import (
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
    body_crc32,
)
from broker_core.protocol.bodies.tables import KVTable
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.remoting.waiting import wait_within
from broker_core.service import Service

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from broker_core.clock import Clock
    from broker_core.message.data_version import DataVersion
    from broker_core.namesrv.routes import BrokerIdentity, RouteTable
    from broker_core.remoting.client import RemotingClient

logger = logging.getLogger(__name__)

PERIOD_MIN_S = 10.0
PERIOD_MAX_S = 60.0
PERIOD_S = 30.0
TIMEOUT_S = 6.0
UNREGISTER_TIMEOUT_S = 3.0
READ_WRITE = PERM_READ | PERM_WRITE


class BrokerRegistration(Service):
    """Keeps name servers informed of one broker. Event loop only.

    `topics` returns the broker's table with its version at the time of the call.
    `name_servers` are addresses asked through `client`, which is shut down with the registration;
    `routes` is the embedded name server's table, `order_topics` what it says of order topics; each
    of these may be missing. `broker_permission` and `period_s` are asked each time, since they may
    change. `on_order_topics` is called with the topics that a name server says are ordered.
    """

    def __init__(
        self,
        identity: BrokerIdentity,
        topics: Callable[[], tuple[DataVersion, Mapping[str, TopicConfig]]],
        clock: Clock,
        *,
        client: RemotingClient | None = None,
        name_servers: Sequence[str] = (),
        routes: RouteTable | None = None,
        broker_permission: Callable[[], int] = lambda: READ_WRITE,
        order_topics: Callable[[], Mapping[str, str]] | None = None,
        period_s: Callable[[], float] = lambda: PERIOD_S,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        super().__init__()
        self._identity = identity
        self._topics = topics
        self._clock = clock
        self._client = client
        self._name_servers = tuple(name_servers) if client is not None else ()
        self._routes = routes
        self._broker_permission = broker_permission
        self._order_topics = order_topics
        self._period_s = period_s
        self._timeout_s = timeout_s
        self._is_started = False
        self._is_changed = False
        self._wake: asyncio.Future[None] | None = None
        self._failing: set[str] = set()
        self._announced: asyncio.Future[None] | None = None
        self.on_order_topics: Callable[[Iterable[str]], None] | None = None

    async def start(self) -> None:
        """Register everywhere, then keep doing so; an unreachable name server is only logged."""
        self._is_started = True
        await self.register_now()
        self.spawn(self._register_forever(), name="registration")

    async def shutdown(self) -> None:
        """Stop, tell everybody to forget the broker; unreachable name servers forget by time."""
        await super().shutdown()
        if self._routes is not None:
            self._routes.unregister(self._identity)
        await asyncio.gather(*(self._unregister_at(each) for each in self._name_servers))
        if self._client is not None:
            await self._client.shutdown()

    def topic_changed(self, topic: str) -> None:
        """Announce that a topic was created, changed or deleted.

        The embedded name server knows when this returns, outside ones soon after.
        """
        if not self._is_started:
            return  # the whole table is told at start
        if self._routes is not None:
            self._routes.register(self._identity, self._wrapper(topic))
            if topic not in self._topics()[1]:
                self._routes.delete_topic_of_broker(topic, self._identity.broker_name)
        self._wake_up()

    def set_name_servers(self, name_servers: Sequence[str]) -> None:
        """Tell these from now on; those left out forget us by time."""
        assert self._client is not None
        self._name_servers = tuple(name_servers)
        self._wake_up()

    def announce(self) -> None:
        """Tell everybody of the whole table, which has a new version; outside ones soon after."""
        if self._is_started and self._routes is not None:
            self._routes.register(self._identity, self._wrapper())
        self._wake_up()

    def announced(self) -> Awaitable[None] | None:
        """Return what is done when all name servers know the table of now, or failed to answer.

        None when they know already: the embedded one is told in the call that changed it.
        """
        if not self._name_servers or not self._is_started:
            return None
        if self._announced is None:
            self._announced = asyncio.get_running_loop().create_future()
        self._wake_up()
        return asyncio.shield(self._announced)

    def _wake_up(self) -> None:
        if self._name_servers:
            self._is_changed = True
            if self._wake is not None and not self._wake.done():
                self._wake.set_result(None)

    async def _register_forever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wake = loop.create_future()
            if not self._is_changed:
                period_s = min(max(self._period_s(), PERIOD_MIN_S), PERIOD_MAX_S)
                await wait_within(self._clock, self._wake, period_s)
            await self.register_now()

    async def register_now(self) -> None:
        """Tell everybody the whole table.

        Differs: the original sends a changed topic alone. A name server that lost us meanwhile
        would take that for our whole table, since the next one has the same version.
        """
        self._is_changed = False
        announced, self._announced = self._announced, None
        wrapper = self._wrapper()
        if self._routes is not None:
            self._routes.register(self._identity, wrapper)
            if self._order_topics is not None:
                self._hear_of_order_topics(self._order_topics())
        try:
            if self._name_servers:
                body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode()
                await asyncio.gather(
                    *(self._register_at(each, body) for each in self._name_servers)
                )
        finally:
            if announced is not None and not announced.done():
                announced.set_result(None)

    def _hear_of_order_topics(self, topics: Iterable[str]) -> None:
        if self.on_order_topics is not None:
            self.on_order_topics(topics)

    def _wrapper(self, only: str | None = None) -> TopicConfigSerializeWrapper:
        data_version, table = self._topics()
        chosen = dict(table)
        if only is not None:
            chosen = {only: table[only]} if only in table else {}
        permission = self._broker_permission()
        if permission != READ_WRITE:
            chosen = {
                topic: msgspec.structs.replace(config, perm=permission)
                for topic, config in chosen.items()
            }
        return TopicConfigSerializeWrapper(data_version=data_version, topic_config_table=chosen)

    async def _register_at(self, name_server: str, body: bytes) -> None:
        fields = {
            **self._identity_fields(),
            "haServerAddr": self._identity.ha_server_addr,
            "compressed": "false",
            "bodyCrc32": str(body_crc32(body)),
        }
        request = RemotingCommand.request(RequestCode.REGISTER_BROKER, fields, body)
        answer = await self._tell(name_server, request, self._timeout_s)
        if answer is not None and answer.body:
            try:
                self._hear_of_order_topics(java_json.decode_as(answer.body, KVTable).table)
            except ValueError as error:
                logger.warning("order topics cannot be read: address=%s %s", name_server, error)

    async def _unregister_at(self, name_server: str) -> None:
        request = RemotingCommand.request(RequestCode.UNREGISTER_BROKER, self._identity_fields())
        await self._tell(name_server, request, UNREGISTER_TIMEOUT_S)

    def _identity_fields(self) -> dict[str, str]:
        return {
            "brokerName": self._identity.broker_name,
            "brokerAddr": self._identity.broker_addr,
            "clusterName": self._identity.cluster_name,
            "brokerId": str(self._identity.broker_id),
        }

    async def _tell(
        self, name_server: str, request: RemotingCommand, timeout_s: float
    ) -> RemotingCommand | None:
        """Send a request; log when a name server begins to fail, and when it ceases to."""
        assert self._client is not None
        answer = None
        try:
            answer = await self._client.request(name_server, request, timeout_s)
        except RemotingError as error:
            failure = str(error)
        else:
            failure = (
                "" if answer.code == ResponseCode.SUCCESS else f"{answer.code} {answer.remark}"
            )
        if failure and name_server not in self._failing:
            logger.warning("name server fails: address=%s reason=%s", name_server, failure)
            self._failing.add(name_server)
        elif not failure and name_server in self._failing:
            logger.info("name server answers again: address=%s", name_server)
            self._failing.discard(name_server)
        return None if failure else answer
