"""The registered brokers, their topics and queues.

A broker stays registered until it unregisters, its connection closes, or it is silent for 120 s.
Only masters (ID 0) register queues.

A registration belongs to the connection that made it. While that connection is open and not silent,
other peers need proof of identity to register the same name and ID from another address, or the
same address as another broker. The same registration over another connection is allowed, because a
broker may return before the loss of its first connection is noticed. The registration then belongs
to both connections: either can change it, and it ends with the last connection.

Invariant: a broker name is in `_brokers` if and only if one of its addresses is in `_live`.
Source: namesrv/routeinfo/RouteInfoManager.java (4.9.7).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.config.namesrv import NamesrvConfig
from broker_core.counted_log import CountedLog
from broker_core.errors import RequestRefusedError
from broker_core.isolation import isolated
from broker_core.message.topic_config import FLAG_UNIT, FLAG_UNIT_SUB, PERM_READ, PERM_WRITE
from broker_core.namesrv.claims import Claims
from broker_core.namesrv.identity import LiveBroker
from broker_core.namesrv.master_terms import MasterTerms
from broker_core.namesrv.shared_queues import check_sizes
from broker_core.namesrv.topic_table import TopicTable
from broker_core.protocol.bodies.cluster import ClusterInfo
from broker_core.protocol.bodies.route import MASTER_ID, BrokerData, TopicRouteData
from broker_core.protocol.codes import ResponseCode
from broker_core.steps import run_to_end

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Generator, Sequence

    from broker_core.clock import Clock
    from broker_core.message.data_version import DataVersion
    from broker_core.namesrv.identity import BrokerIdentity
    from broker_core.protocol.bodies.registration import TopicConfigSerializeWrapper

logger = logging.getLogger(__name__)

BROKERS_MAX = 2_000
ROUTES_MAX = 60_000
"""Topics, counted once for every broker that has them."""
ENCODED_MAX = 4_096
"""Maximum number of cached encoded routes."""
TOPICS_PER_STEP = 256
LINES_MAX = 10
"""Number of brokers that the log names when several disconnect together; 2,000 lines take 60 ms."""


@dataclass(frozen=True, slots=True)
class RegisterResult:
    """The addresses of a slave's master, empty if no master is registered."""

    ha_server_addr: str = ""
    master_addr: str = ""


class RouteTable:
    """Registers brokers, finds routes. Event loop only."""

    def __init__(self, clock: Clock, config: NamesrvConfig | None = None) -> None:
        self._clock = clock
        self._config = config or NamesrvConfig()
        self._counted_log = CountedLog(clock)
        self._changed_masters: set[str] = set()
        self.master_listeners: list[Callable[[str], None]] = []
        """Called with a broker's name when its master has registered, moved or left."""
        self._master_terms = MasterTerms(clock)
        self._clusters: dict[str, dict[str, None]] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._live: dict[str, LiveBroker] = {}
        self._topics = TopicTable()
        self._claims = Claims(
            self._brokers, self._live, self._master_terms, clock, self._counted_log
        )
        self._filter_servers: dict[str, list[str]] = {}
        # Encoded answers to GET_ROUTEINFO_BY_TOPIC: each client requests its topics every 30 s.
        self._encoded: dict[tuple[str, bool], bytes] = {}
        # The addresses that a connection has registered.
        self._registering: dict[object, dict[str, None]] = {}

    # Registration.

    def register(
        self,
        identity: BrokerIdentity,
        topics: TopicConfigSerializeWrapper,
        filter_servers: Sequence[str] = (),
        owner: object | None = None,
        *,
        is_whole: bool = True,
        is_proven: bool = False,
    ) -> RegisterResult:
        """Register a broker with its topics; see register_steps."""
        return run_to_end(
            self.register_steps(
                identity, topics, filter_servers, owner, is_whole=is_whole, is_proven=is_proven
            )
        )

    def register_steps(
        self,
        identity: BrokerIdentity,
        topics: TopicConfigSerializeWrapper,
        filter_servers: Sequence[str] = (),
        owner: object | None = None,
        *,
        is_whole: bool = True,
        is_proven: bool = False,
    ) -> Generator[None, None, RegisterResult]:
        """Register a broker with its topics; yield after each TOPICS_PER_STEP of them.

        The broker's topics that are missing from the table stay, unless the table is complete and
        deleteTopicWithBrokerRegistration is on. With `is_proven`, the broker has an account and
        takes over its name and address from any other registrant, as does the broker in this
        process.

        Raises:
            RequestRefusedError: the name or the address belongs to another broker, another master
                registered in a later epoch, or the limit of brokers or topics is reached.
        """
        is_master = identity.broker_id == MASTER_ID
        if is_master:
            self._master_terms.require(identity.broker_name, identity.epoch, identity.broker_addr)
        is_proven = is_proven or owner is None
        if not is_proven:
            self._claims.require_free(identity, owner)
        known = self._brokers.get(identity.broker_name)
        if owner is not None and known is None and len(self._brokers) >= BROKERS_MAX:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"the limit of {BROKERS_MAX} brokers is reached"
            )
        self._require_bounds(identity, topics, filter_servers, owner)
        renamed = self._live.get(identity.broker_addr)
        if renamed is not None and renamed.identity.broker_name != identity.broker_name:
            self._remove(identity.broker_addr)
        if known is not None and self._is_of_new_cluster(known, identity):
            self._leave_cluster(known)
            known.cluster = identity.cluster_name
            self._encoded.clear()
        data = known or BrokerData(
            broker_addrs={}, broker_name=identity.broker_name, cluster=identity.cluster_name
        )
        is_first = self._put_address(data, identity)
        self._brokers[identity.broker_name] = data
        self._clusters.setdefault(data.cluster, {})[identity.broker_name] = None

        address = identity.broker_addr
        before = self._live.get(address)
        version = topics.data_version
        is_other = is_master and (is_first or before is None or before.data_version != version)
        if before is None:
            logger.info(
                "broker registered broker_name=%s broker_id=%d address=%s topics=%d",
                identity.broker_name,
                identity.broker_id,
                address,
                len(topics.topic_config_table),
            )
        owners = () if before is None or is_proven else before.owners
        if owner not in owners:
            owners = (*owners, owner)
        self._forget_live(address)
        live = self._live[address] = LiveBroker(identity, version, owners, self._clock.monotonic())
        for each in owners:
            if each is not None:
                self._registering.setdefault(each, {})[address] = None
        if list(filter_servers) != self._filter_servers.get(address, []):
            self._filter_servers[address] = list(filter_servers)
            self._encoded.clear()
        self._notify_of_masters()
        if not is_master:
            return self._master_of(data)
        self._master_terms.note(identity.broker_name, identity.epoch, address)
        if is_other:
            yield from self._put_topics(live, topics)
        if is_whole and self._config.delete_topic_with_broker_registration:
            yield from self._delete_topics_but(topics.topic_config_table.keys(), live)
        return RegisterResult()

    def unregister(
        self, identity: BrokerIdentity, owner: object | None = None, *, is_proven: bool = False
    ) -> None:
        """Remove an address, if this broker registered it.

        The address stays while it also belongs to another connection.

        Raises:
            RequestRefusedError: it doesn't belong to this connection.
        """
        address = identity.broker_addr
        live = self._live.get(address)
        if live is None or live.identity.broker_name != identity.broker_name:
            return
        if owner is not None and not is_proven:
            if owner not in live.owners:
                self._claims.refuse(identity, f"{address} was registered over another connection")
            self._release_owner(live, owner)
            if live.owners:
                return
        self._remove(address)
        logger.info("broker unregistered broker_name=%s address=%s", identity.broker_name, address)

    def expire(self) -> list[object]:
        """Remove brokers that were silent too long; return their connections."""
        expired = [live for live in self._live.values() if self._claims.is_expired(live)]
        owners = [owner for live in expired for owner in live.owners if owner is not None]
        self._remove_all(expired, "broker expired")
        return owners

    def owner_lost(self, owner: object) -> None:
        """Remove the brokers that registered only over a connection that has ended."""
        registered = [self._live[address] for address in self._registering.get(owner, ())]
        for live in registered:
            self._release_owner(live, owner)
        self._remove_all([live for live in registered if not live.owners], "broker disconnected")

    def is_changed(
        self, broker_addr: str, data_version: DataVersion, owner: object | None = None
    ) -> bool:
        """Return whether a broker has to register.

        It must if its table differs from the registered one, or if it uses a connection that didn't
        register it.
        """
        live = self._live.get(broker_addr)
        return live is None or live.data_version != data_version or owner not in live.owners

    def heard(self, broker_addr: str) -> None:
        """Note a sign of life."""
        if (live := self._live.get(broker_addr)) is not None:
            live.heard_at = self._clock.monotonic()

    def master_of(self, broker_name: str) -> RegisterResult:
        """Return the addresses of a broker's master, empty if no master is live."""
        data = self._brokers.get(broker_name)
        return RegisterResult() if data is None else self._master_of(data)

    def slaves_of(self, broker_name: str) -> list[LiveBroker]:
        """Return the live slaves of a broker."""
        data = self._brokers.get(broker_name)
        addresses = {} if data is None else data.broker_addrs
        return [
            self._live[address]
            for broker_id, address in addresses.items()
            if broker_id != MASTER_ID and address in self._live
        ]

    def data_version_of(self, broker_addr: str) -> DataVersion | None:
        """Return the version that a broker last registered, or None for an unknown broker."""
        live = self._live.get(broker_addr)
        return None if live is None else live.data_version

    def shutdown(self) -> None:
        """Log the refusals counted since the last line."""
        self._counted_log.shutdown()

    # Routes.

    def route(self, topic: str, order_topic_conf: str | None = None) -> TopicRouteData | None:
        """Return the brokers and queues of a topic, or None if no broker has it."""
        queues = self._topics.queues.get(topic)
        if not queues:
            return None
        brokers = [self._brokers[name] for name in queues if name in self._brokers]
        if not brokers:
            return None
        addresses = [address for broker in brokers for address in broker.broker_addrs.values()]
        route = TopicRouteData(
            broker_datas=brokers,
            filter_server_table={
                address: self._filter_servers[address]
                for address in addresses
                if self._filter_servers.get(address)
            },
            queue_datas=list(queues.values()),
        )
        if order_topic_conf is not None:
            route.order_topic_conf = order_topic_conf
        return route

    def encoded_route(self, topic: str, *, is_standard: bool) -> bytes | None:
        """Return a topic's route as an answer's body, or None if no broker has it."""
        key = (topic, is_standard)
        body = self._encoded.get(key)
        if body is None:
            route = self.route(topic)
            if route is None:
                return None
            if len(self._encoded) >= ENCODED_MAX:
                self._encoded.clear()
            body = self._encoded[key] = route.encode(is_standard=is_standard)
        return body

    def cluster_info(self) -> ClusterInfo:
        """Return all brokers."""
        return ClusterInfo(
            broker_addr_table=self._brokers,
            cluster_addr_table={name: list(brokers) for name, brokers in self._clusters.items()},
        )

    # Topics.

    def topics(self) -> list[str]:
        """Return all topics."""
        return list(self._topics.queues)

    def topics_of_cluster(self, cluster_name: str) -> list[str]:
        """Return the topics that at least one broker of a cluster has."""
        return self._topics.of_any(self._clusters.get(cluster_name, {}))

    def unit_topics(self) -> list[str]:
        """Return the topics of a unit."""
        return self._topics.where(lambda flag: bool(flag & FLAG_UNIT))

    def unit_sub_topics(self) -> list[str]:
        """Return the topics with subscriptions of a unit."""
        return self._topics.where(lambda flag: bool(flag & FLAG_UNIT_SUB))

    def unit_sub_ununit_topics(self) -> list[str]:
        """Return the topics that have subscriptions of a unit but don't belong to a unit."""
        return self._topics.where(lambda flag: flag & (FLAG_UNIT | FLAG_UNIT_SUB) == FLAG_UNIT_SUB)

    def system_topics(self) -> tuple[list[str], str | None]:
        """Return cluster and broker names, and the address of a broker that lists the others."""
        names = [*self._clusters, *(name for names in self._clusters.values() for name in names)]
        addresses = (
            address for data in self._brokers.values() for address in data.broker_addrs.values()
        )
        return names, next(addresses, None)

    def delete_topic(self, topic: str, cluster_name: str | None = None) -> None:
        """Remove a topic: everywhere, or from the brokers of one cluster."""
        if cluster_name is None:
            self._topics.delete(topic)
        else:
            for broker_name in self._clusters.get(cluster_name, {}):
                self.delete_topic_of_broker(topic, broker_name)
        self._encoded.clear()

    def delete_topic_of_broker(self, topic: str, broker_name: str) -> None:
        """Remove one broker's queues of a topic."""
        if self._topics.delete_of_broker(topic, broker_name):
            self._encoded.clear()

    def topic_nums_of(self, broker_name: str) -> int:
        """Return the number of a broker's topics."""
        return len(self._topics.of_broker(broker_name))

    def wipe_write_perm(self, broker_name: str) -> Generator[None, None, int]:
        """Forbid writing to a broker's topics until it registers; return their number, in steps."""
        changed = yield from self._topics.change_perm(broker_name, lambda perm: perm & ~PERM_WRITE)
        self._encoded.clear()
        return changed

    def add_write_perm(self, broker_name: str) -> Generator[None, None, int]:
        """Allow reading and writing of a broker's topics; return their number, in steps."""
        changed = yield from self._topics.change_perm(broker_name, lambda _: PERM_READ | PERM_WRITE)
        self._encoded.clear()
        return changed

    # Internal.

    def _is_of_new_cluster(self, known: BrokerData, identity: BrokerIdentity) -> bool:
        """Return whether a registration moves a broker; a slave doesn't move its master."""
        if known.cluster == identity.cluster_name:
            return False
        return identity.broker_id == MASTER_ID or MASTER_ID not in known.broker_addrs

    def _put_address(self, data: BrokerData, identity: BrokerIdentity) -> bool:
        """Store an address; return whether it is the broker's first with this ID."""
        address, broker_id = identity.broker_addr, identity.broker_id
        addresses = data.broker_addrs
        for other_id, other in list(addresses.items()):
            # A slave became master: an address has only one id.
            if other == address and other_id != broker_id:
                del addresses[other_id]
        before = addresses.get(broker_id)
        if before != address:
            addresses[broker_id] = address
            self._encoded.clear()
            if broker_id == MASTER_ID:
                self._changed_masters.add(identity.broker_name)
        if before is not None and before != address:
            self._counted_log.report(
                logger,
                logging.WARNING,
                "route of a live broker changed",
                f"broker_name={identity.broker_name}",
                "broker_id=%d address=%s before=%s",
                broker_id,
                address,
                before,
            )
            self._forget_live(before)
            self._filter_servers.pop(before, None)
        return before is None

    def _notify_of_masters(self) -> None:
        changed, self._changed_masters = self._changed_masters, set()
        for broker_name in changed:
            for listener in self.master_listeners:
                with isolated("announcing a master", broker_name):
                    listener(broker_name)

    def _put_topics(
        self, live: LiveBroker, topics: TopicConfigSerializeWrapper
    ) -> Generator[None, None, None]:
        """Put a master's queues in steps; stop if its registration is replaced or removed."""
        for number, (topic, config) in enumerate(topics.topic_config_table.items()):
            if not number % TOPICS_PER_STEP:
                self._encoded.clear()
                yield
                if not self._is_current(live):
                    return
            self._topics.put(live.identity.broker_name, topic, config)
        self._encoded.clear()

    def _is_current(self, live: LiveBroker) -> bool:
        return self._live.get(live.identity.broker_addr) is live

    def _require_bounds(
        self,
        identity: BrokerIdentity,
        topics: TopicConfigSerializeWrapper,
        filter_servers: Sequence[str],
        owner: object | None,
    ) -> None:
        check_sizes(
            (identity.broker_name, identity.cluster_name, *topics.topic_config_table),
            filter_servers,
        )
        if owner is not None:
            # Our own process always has room: others must not keep it out.
            self._require_room(identity, topics)

    def _require_room(self, identity: BrokerIdentity, topics: TopicConfigSerializeWrapper) -> None:
        table = topics.topic_config_table
        # All topics may be new; count the new ones only near the limit.
        route_nums = self._topics.route_nums
        if route_nums + len(table) > ROUTES_MAX:
            added = self._topics.count_new(identity.broker_name, table)
            if added and route_nums + added > ROUTES_MAX:
                raise RequestRefusedError(
                    ResponseCode.SYSTEM_ERROR, f"the limit of {ROUTES_MAX} routes is reached"
                )

    def _delete_topics_but(
        self, kept: Container[str], live: LiveBroker
    ) -> Generator[None, None, None]:
        name = live.identity.broker_name
        gone = [topic for topic in self._topics.of_broker(name) if topic not in kept]
        for number, topic in enumerate(gone):
            if not number % TOPICS_PER_STEP:
                yield
                if not self._is_current(live):
                    return
            logger.info("topic unregistered topic=%s broker=%s", topic, name)
            self.delete_topic_of_broker(topic, name)

    def _master_of(self, data: BrokerData) -> RegisterResult:
        master_addr = data.broker_addrs.get(MASTER_ID)
        master = self._live.get(master_addr) if master_addr is not None else None
        if master_addr is None or master is None:
            return RegisterResult()
        return RegisterResult(master.identity.ha_server_addr, master_addr)

    def _remove(self, address: str) -> None:
        """Remove an address, and the broker's queues with its last address."""
        live = self._live[address]
        self._forget_live(address)
        self._filter_servers.pop(address, None)
        self._encoded.clear()
        data = self._brokers.get(live.identity.broker_name)
        if data is None:
            return
        for broker_id, other in list(data.broker_addrs.items()):
            if other == address:
                del data.broker_addrs[broker_id]
                if broker_id == MASTER_ID:
                    self._changed_masters.add(data.broker_name)
        if data.broker_addrs:
            self._notify_of_masters()
            return
        self._changed_masters.discard(data.broker_name)
        del self._brokers[data.broker_name]
        self._leave_cluster(data)
        for topic in list(self._topics.of_broker(data.broker_name)):
            self._topics.delete_of_broker(topic, data.broker_name)

    def _remove_all(self, gone: Sequence[LiveBroker], event: str) -> None:
        for live in gone[:LINES_MAX]:
            identity = live.identity
            logger.warning(
                "%s broker_name=%s address=%s", event, identity.broker_name, identity.broker_addr
            )
        if len(gone) > LINES_MAX:
            logger.warning("%s more=%d", event, len(gone) - LINES_MAX)
        for live in gone:
            with isolated("removing a broker", live.identity.broker_addr):
                self._remove(live.identity.broker_addr)

    def _forget_live(self, address: str) -> None:
        live = self._live.pop(address, None)
        if live is not None:
            for owner in live.owners:
                self._release_owner(live, owner)

    def _release_owner(self, live: LiveBroker, owner: object | None) -> None:
        live.owners = tuple(each for each in live.owners if each is not owner)
        addresses = self._registering.get(owner)
        if addresses is not None:
            addresses.pop(live.identity.broker_addr, None)
            if not addresses:
                del self._registering[owner]

    def _leave_cluster(self, data: BrokerData) -> None:
        names = self._clusters.get(data.cluster)
        if names is not None:
            names.pop(data.broker_name, None)
            if not names:
                del self._clusters[data.cluster]
