"""Keep this broker registered with name servers.

The broker registers at startup, periodically, and immediately when a topic changes: over the wire
with outside name servers, with a direct call at the embedded one. Shutdown unregisters the broker.

Source: broker/out/BrokerOuterAPI.java, broker/BrokerController.java (4.9.7).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from broker_core.clock import wait_within
from broker_core.errors import RemotingError
from broker_core.isolation import isolated
from broker_core.message.topic_config import PERM_READ, PERM_WRITE, TopicConfig
from broker_core.namesrv.routes import RegisterResult
from broker_core.protocol import java_json
from broker_core.protocol.bodies.registration import (
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
    body_crc32,
)
from broker_core.protocol.bodies.route import MASTER_ID
from broker_core.protocol.bodies.tables import KVTable
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.service import Service

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from broker_core.clock import Clock, Timer
    from broker_core.message.data_version import DataVersion
    from broker_core.namesrv.identity import BrokerIdentity
    from broker_core.namesrv.routes import RouteTable
    from broker_core.remoting.client import RemotingClient

logger = logging.getLogger(__name__)

PERIOD_MIN_S = 10.0
PERIOD_MAX_S = 60.0
PERIOD_S = 30.0
TIMEOUT_S = 6.0
UNREGISTER_TIMEOUT_S = 3.0
NEW_ID_RETRY_S = 3.0
"""Time between attempts to register a new ID, which a name server reserves for the old master at
first.
"""
NOTICE_INTERVAL_S = 1.0
"""Minimum time between two registrations that notices trigger."""
READ_WRITE = PERM_READ | PERM_WRITE


class RegistrationTerms(NamedTuple):
    """Content and timing of registrations. The functions are called for each registration."""

    broker_permission: Callable[[], int] = lambda: READ_WRITE
    period_s: Callable[[], float] = lambda: PERIOD_S
    timeout_s: float = TIMEOUT_S
    is_forced: bool = True
    """Register every period; if False, only where the name server has a different version."""
    is_compressed: bool = False
    epoch: Callable[[], int] = lambda: 0
    on_outranked: Callable[[int, str], None] = lambda _epoch, _name_server: None
    """Called with the later epoch that another master registered in, and where."""


TERMS = RegistrationTerms()


class BrokerRegistration(Service):
    """Keeps name servers informed of one broker. Event loop only.

    `topics` returns the broker's current table and its version. `client` connects to the outside
    `name_servers`; shutdown also shuts it down. `routes` is the table of the embedded name server,
    and `order_topics` returns that server's ordered topics. All of these are optional.
    `on_order_topics` is called with the topics that a name server lists as ordered.

    Attributes:
        on_master: called on a slave with the master's addresses, or with empty ones. The first
            name server that has a master decides; the embedded one is asked first.
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
        order_topics: Callable[[], Mapping[str, str]] | None = None,
        terms: RegistrationTerms = TERMS,
        on_order_topics: Callable[[Iterable[str]], None] | None = None,
    ) -> None:
        super().__init__()
        self._identity = identity
        self._topics = topics
        self._clock = clock
        self._client = client
        self._name_servers = tuple(name_servers) if client is not None else ()
        self._routes = routes
        self._order_topics = order_topics
        self._terms = terms
        self._is_started = False
        self._is_changed = False
        self._wake: asyncio.Future[None] | None = None
        self._failing: set[str] = set()
        self._announced: asyncio.Future[None] | None = None
        self._on_order_topics = on_order_topics
        self.on_master: Callable[[RegisterResult], None] | None = None
        self._pending_new_id: set[str] = set()
        self._noticed_at = -NOTICE_INTERVAL_S
        self._notice_timer: Timer | None = None
        if routes is not None:
            routes.master_listeners.append(self._master_changed)

    async def start(self) -> None:
        """Register everywhere, then every period; an unreachable name server is only logged."""
        self._is_started = True
        await self.register_now()
        self.spawn_forever(self._clock, self._register_forever, name="registration")

    async def shutdown(self) -> None:
        """Stop and unregister everywhere; an unreachable name server lets the broker expire."""
        if self._notice_timer is not None:
            self._notice_timer.cancel()
        await super().shutdown()
        if self._routes is not None:
            self._routes.unregister(self._identity)
        await asyncio.gather(
            *(self._unregister_at(each) for each in self._name_servers), return_exceptions=True
        )
        if self._client is not None:
            await self._client.shutdown()

    def topic_changed(self, topic: str) -> None:
        """Announce that a topic was created, changed or deleted.

        The embedded name server has the change when this returns, outside ones soon after.
        """
        if not self._is_started:
            return  # start registers the whole table
        if self._routes is not None:
            self._routes.register(self._current(), self._wrapper(topic), is_whole=False)
            if topic not in self._topics()[1]:
                self._routes.delete_topic_of_broker(topic, self._identity.broker_name)
        self._wake_up()

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The outside name servers that the broker registers with."""
        return self._name_servers

    def set_name_servers(self, name_servers: Sequence[str]) -> None:
        """Register with these name servers from now on; the broker expires on the others."""
        assert self._client is not None
        self._name_servers = tuple(name_servers)
        self._pending_new_id.intersection_update(name_servers)
        self._wake_up()

    def announce(self) -> None:
        """Register the whole table after its version changed; outside name servers follow."""
        if self._is_started and self._routes is not None:
            self._routes.register(self._current(), self._wrapper())
        self._wake_up()

    def identify(self, broker_id: int) -> None:
        """Register under a different ID, because the role has changed."""
        self._identity = replace(self._identity, broker_id=broker_id)
        self._pending_new_id = set(self._name_servers)
        self.announce()

    def register_soon(self, broker_name: str) -> None:
        """Query the name servers again after a notice that a broker's master has changed.

        Any client can send such a notice, so only the name servers' answers count, and they are
        queried at most once a second.
        """
        is_ours = broker_name == self._identity.broker_name and self._is_slave
        if is_ours and self._notice_timer is None and self._name_servers:
            when = max(self._clock.monotonic(), self._noticed_at + NOTICE_INTERVAL_S)
            self._notice_timer = self._clock.call_at(when, self._register_now)

    def _register_now(self) -> None:
        self._notice_timer = None
        self._noticed_at = self._clock.monotonic()
        self._wake_up()

    def announced(self) -> Awaitable[None] | None:
        """Return an awaitable that ends once each name server has the current table or has failed.

        None without outside name servers, because the embedded one has each change immediately.
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
                period_s = min(max(self._terms.period_s(), PERIOD_MIN_S), PERIOD_MAX_S)
                if self._pending_new_id:
                    period_s = NEW_ID_RETRY_S
                await wait_within(self._clock, self._wake, period_s)
            # A slave always registers, because the answer contains its master's address.
            is_forced = self._is_changed or self._terms.is_forced or self._is_slave
            await self.register_now(is_forced=is_forced)

    async def register_now(self, *, is_forced: bool = True) -> None:
        """Register the whole table; unless forced, only where a different version is registered.

        Differs: RocketMQ sends a changed topic alone. A name server that lost the broker in the
        meantime would treat that topic as the whole table, because the next table has the same
        version.
        """
        self._is_changed = False
        announced, self._announced = self._announced, None
        wrapper = self._wrapper()
        answers: list[RegisterResult | None] = []
        if self._routes is not None:
            with isolated("registration with the embedded name server"):
                answers.append(self._routes.register(self._current(), wrapper))
                if self._order_topics is not None:
                    self._apply_order_topics(self._order_topics())
        try:
            if self._name_servers:
                body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode(
                    is_compressed=self._terms.is_compressed
                )
                version = None if is_forced else wrapper.data_version
                answers += await asyncio.gather(
                    *(self._register_alone(each, body, version) for each in self._name_servers)
                )
        finally:
            if announced is not None and not announced.done():
                announced.set_result(None)
        with isolated("handling the name servers' answers about the master"):
            self._apply_master([each for each in answers if each is not None])

    @property
    def _is_slave(self) -> bool:
        return self._identity.broker_id != MASTER_ID

    def _master_changed(self, broker_name: str) -> None:
        """Read the new master from the embedded name server immediately."""
        if self._is_started and broker_name == self._identity.broker_name:
            assert self._routes is not None
            self._apply_master([self._routes.master_of(broker_name)])

    def _apply_master(self, answers: Sequence[RegisterResult]) -> None:
        if self.on_master is None or not self._is_slave or not answers:
            return
        own = self._identity.broker_addr
        known = [each for each in answers if each.master_addr and each.master_addr != own]
        self.on_master(known[0] if known else RegisterResult())

    def _apply_order_topics(self, topics: Iterable[str]) -> None:
        if self._on_order_topics is not None:
            self._on_order_topics(topics)

    def _wrapper(self, only: str | None = None) -> TopicConfigSerializeWrapper:
        data_version, table = self._topics()
        names = table if only is None else table.keys() & {only}
        chosen = {topic: table[topic] for topic in names}
        permission = self._terms.broker_permission()
        if permission != READ_WRITE:
            chosen = {
                topic: msgspec.structs.replace(config, perm=permission)
                for topic, config in chosen.items()
            }
        return TopicConfigSerializeWrapper(data_version=data_version, topic_config_table=chosen)

    async def _register_alone(
        self, name_server: str, body: bytes, version: DataVersion | None
    ) -> RegisterResult | None:
        """Register with one name server; its answer must not affect the others."""
        with isolated("registration with a name server", name_server):
            return await self._register_at(name_server, body, version)
        return None

    async def _register_at(
        self, name_server: str, body: bytes, version: DataVersion | None
    ) -> RegisterResult | None:
        """Register, unless the name server already has the given version.

        Returns its answer about a slave's master, or None if there was no request or no answer.
        """
        if version is not None and await self._is_known_at(name_server, version):
            return None
        fields = {
            **self._identity_fields(),
            "haServerAddr": self._identity.ha_server_addr,
            "compressed": "true" if self._terms.is_compressed else "false",
            "bodyCrc32": str(body_crc32(body)),
            # Trebuchet's own field; RocketMQ's name server ignores it.
            "epoch": str(self._terms.epoch()),
        }
        request = RemotingCommand.request(RequestCode.REGISTER_BROKER, fields, body)
        answer = await self._send(name_server, request, self._terms.timeout_s)
        if answer is None:
            return None
        self._pending_new_id.discard(name_server)
        if answer.body:
            try:
                self._apply_order_topics(java_json.decode_as(answer.body, KVTable).table)
            except ValueError as error:
                logger.warning("order topics not read address=%s reason=%s", name_server, error)
        fields = answer.ext_fields
        return RegisterResult(fields.get("haServerAddr", ""), fields.get("masterAddr", ""))

    async def _is_known_at(self, name_server: str, version: DataVersion) -> bool:
        """Return whether a name server has this version; the query is also a sign of life."""
        request = RemotingCommand.request(
            RequestCode.QUERY_DATA_VERSION, self._identity_fields(), msgspec.json.encode(version)
        )
        answer = await self._send(name_server, request, self._terms.timeout_s)
        return answer is not None and answer.ext_fields.get("changed") == "false"

    async def _unregister_at(self, name_server: str) -> None:
        request = RemotingCommand.request(RequestCode.UNREGISTER_BROKER, self._identity_fields())
        await self._send(name_server, request, UNREGISTER_TIMEOUT_S)

    def _current(self) -> BrokerIdentity:
        return replace(self._identity, epoch=self._terms.epoch())

    def _identity_fields(self) -> dict[str, str]:
        return {
            "brokerName": self._identity.broker_name,
            "brokerAddr": self._identity.broker_addr,
            "clusterName": self._identity.cluster_name,
            "brokerId": str(self._identity.broker_id),
        }

    async def _send(
        self, name_server: str, request: RemotingCommand, timeout_s: float
    ) -> RemotingCommand | None:
        """Send a request; log a name server's first failure, and its recovery."""
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
            self._apply_epoch(answer, name_server)
        if failure and name_server not in self._failing:
            logger.warning("name server unreachable address=%s reason=%s", name_server, failure)
            self._failing.add(name_server)
        elif not failure and name_server in self._failing:
            logger.info("name server reachable again address=%s", name_server)
            self._failing.discard(name_server)
        return None if failure else answer

    def _apply_epoch(self, answer: RemotingCommand, name_server: str) -> None:
        """Pass on the later epoch for which a registration was refused."""
        epoch = answer.ext_fields.get("epoch", "")
        if answer.code == ResponseCode.NO_PERMISSION and epoch.isascii() and epoch.isdigit():
            self._terms.on_outranked(int(epoch[:19]), name_server)
