"""RouteTable: the registered brokers, their topics and queues.

A broker stays registered until it unregisters, its connection closes, or it is silent for 120 s.
Only masters (id 0) register queues.

A registration belongs to the connection that brought it. While that is open and not silent, nobody
else registers the same name and id from another address or the same address as another broker,
unless they prove who they are. The same registration over another connection is welcome, since a
broker may come back before the loss of its first connection is seen; it then belongs to both, the
first may change it, and it ends with the last.

Invariant: a broker name is in `_brokers` if and only if one of its addresses is in `_live`.
Invariant: a topic is in `_queues` if and only if a broker has queues of it.
Source: namesrv/routeinfo/RouteInfoManager.java (4.9.7).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import msgspec

from broker_core.config.namesrv import NamesrvConfig
from broker_core.counted_log import CountedLog
from broker_core.errors import RequestRefusedError
from broker_core.message.topic_config import FLAG_UNIT, FLAG_UNIT_SUB, PERM_READ, PERM_WRITE
from broker_core.namesrv.reigns import Reigns
from broker_core.namesrv.shared_queues import SharedQueues, require_short
from broker_core.protocol.bodies.cluster import ClusterInfo
from broker_core.protocol.bodies.route import MASTER_ID, BrokerData, QueueData, TopicRouteData
from broker_core.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence

    from broker_core.clock import Clock
    from broker_core.message.data_version import DataVersion
    from broker_core.protocol.bodies.registration import TopicConfigSerializeWrapper

logger = logging.getLogger(__name__)

BROKER_EXPIRED_S = 120.0
MASTER_SILENT_S = 65.0
"""Longer than brokers go without registering: then a slave of a later epoch may take the name."""
BROKERS_MAX = 2_000
ROUTES_MAX = 60_000
"""Topics, each counted once for every broker that has it."""
ENCODED_MAX = 4_096
"""Encoded routes that are kept."""


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The registering broker. `broker_addr` is the "ip:port" that clients connect to."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str
    ha_server_addr: str = ""
    epoch: int = 0
    """Of a master: its reign, see `reigns`."""


@dataclass(slots=True)
class LiveBroker:
    """A registered address.

    `owners` are the connections that registered it, the oldest first; None is our own process.
    """

    identity: BrokerIdentity
    data_version: DataVersion
    owners: tuple[object | None, ...]
    heard_at: float


@dataclass(frozen=True, slots=True)
class RegisterResult:
    """The addresses of a slave's master, empty while no master is registered."""

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
        """Called with a broker's name when its master has come, moved or gone."""
        self._reigns = Reigns(clock)
        self._clusters: dict[str, dict[str, None]] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._live: dict[str, LiveBroker] = {}
        self._queues: dict[str, dict[str, QueueData]] = {}
        self._filter_servers: dict[str, list[str]] = {}
        # Encoded answers to GET_ROUTEINFO_BY_TOPIC: each client asks for its topics every 30 s.
        self._encoded: dict[tuple[str, bool], bytes] = {}
        self._shared = SharedQueues()
        self._route_nums = 0
        self._registering: set[object] = set()

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
        """Register a broker with its topics.

        Its topics that the table leaves out stay, unless the table is whole and
        deleteTopicWithBrokerRegistration is on. `is_proven`: an account vouches for the broker,
        which then takes its name and address from whoever has them; so does our own process.

        Raises:
            RequestRefusedError: the name or the address belongs to another broker, another master
                registered in a later epoch, or the limit of brokers or topics is reached.
        """
        is_master = identity.broker_id == MASTER_ID
        if is_master:
            self._reigns.require(identity.broker_name, identity.epoch, identity.broker_addr)
        is_proven = is_proven or owner is None
        if not is_proven:
            self._require_free(identity, owner)
        known = self._brokers.get(identity.broker_name)
        if known is None and len(self._brokers) >= BROKERS_MAX:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"the limit of {BROKERS_MAX} brokers is reached"
            )
        self._require_room(identity, topics, filter_servers)
        if owner is not None:
            self._registering.add(owner)
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
        if is_master and (is_first or before is None or before.data_version != version):
            self._put_queues(identity.broker_name, topics)
        is_deleting = is_whole and self._config.delete_topic_with_broker_registration
        if is_deleting and is_master:
            self._delete_topics_but(topics.topic_config_table.keys(), identity.broker_name)
        if before is None:
            logger.info(
                "broker registered: broker_name=%s broker_id=%d address=%s topics=%d",
                identity.broker_name,
                identity.broker_id,
                address,
                len(topics.topic_config_table),
            )
        owners = () if before is None or is_proven else before.owners
        if owner not in owners:
            owners = (*owners, owner)
        self._live[address] = LiveBroker(identity, version, owners, self._clock.monotonic())
        if list(filter_servers) != self._filter_servers.get(address, []):
            self._filter_servers[address] = list(filter_servers)
            self._encoded.clear()
        self._tell_of_masters()
        if not is_master:
            return self._master_of(data)
        self._reigns.note(identity.broker_name, identity.epoch, address)
        return RegisterResult()

    def unregister(
        self, identity: BrokerIdentity, owner: object | None = None, *, is_proven: bool = False
    ) -> None:
        """Remove an address, if this broker registered it.

        It stays while it belongs to another connection, too.

        Raises:
            RequestRefusedError: it does not belong to this connection.
        """
        address = identity.broker_addr
        live = self._live.get(address)
        if live is None or live.identity.broker_name != identity.broker_name:
            return
        if owner is not None and not is_proven:
            if owner not in live.owners:
                self._refuse(identity, f"{address} was registered over another connection")
            live.owners = tuple(each for each in live.owners if each is not owner)
            if live.owners:
                return
        self._remove(address)
        logger.info("broker unregistered: broker_name=%s address=%s", identity.broker_name, address)

    def expire(self) -> list[object]:
        """Remove brokers that were silent too long; return their connections."""
        owners = []
        for address, live in list(self._live.items()):
            if self._is_expired(live):
                logger.warning(
                    "broker expired: broker_name=%s address=%s", live.identity.broker_name, address
                )
                self._remove(address)
                owners += [owner for owner in live.owners if owner is not None]
        return owners

    def owner_lost(self, owner: object) -> None:
        """Remove the brokers that registered only over a connection that ended."""
        if owner not in self._registering:
            return
        self._registering.discard(owner)
        for address, live in list(self._live.items()):
            if owner not in live.owners:
                continue
            live.owners = tuple(each for each in live.owners if each is not owner)
            if not live.owners:
                logger.warning(
                    "broker disconnected: broker_name=%s address=%s",
                    live.identity.broker_name,
                    address,
                )
                self._remove(address)

    def is_changed(
        self, broker_addr: str, data_version: DataVersion, owner: object | None = None
    ) -> bool:
        """Return whether a broker has to register.

        It has when its table differs from the registered one, or when it asks over a connection
        that did not register it.
        """
        live = self._live.get(broker_addr)
        return live is None or live.data_version != data_version or owner not in live.owners

    def heard(self, broker_addr: str) -> None:
        """Note a sign of life."""
        if (live := self._live.get(broker_addr)) is not None:
            live.heard_at = self._clock.monotonic()

    def master_of(self, broker_name: str) -> RegisterResult:
        """Return the addresses of a broker's master, empty ones without a live master."""
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
        """Return the version that a broker registered last, None for an unknown broker."""
        live = self._live.get(broker_addr)
        return None if live is None else live.data_version

    def shutdown(self) -> None:
        """Log the refusals counted since the last line."""
        self._counted_log.shutdown()

    # Routes.

    def route(self, topic: str, order_topic_conf: str | None = None) -> TopicRouteData | None:
        """Return the brokers and queues of a topic, None when no broker has it."""
        queues = self._queues.get(topic)
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
        """Return a topic's route as an answer's body, None when no broker has it."""
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
        return list(self._queues)

    def topics_of_cluster(self, cluster_name: str) -> list[str]:
        """Return the topics that some broker of a cluster has."""
        brokers = self._clusters.get(cluster_name, {})
        return [
            topic for topic, queues in self._queues.items() if not brokers.keys().isdisjoint(queues)
        ]

    def unit_topics(self) -> list[str]:
        """Return the topics of a unit."""
        return self._topics_where(lambda flag: bool(flag & FLAG_UNIT))

    def unit_sub_topics(self) -> list[str]:
        """Return the topics with subscriptions of a unit."""
        return self._topics_where(lambda flag: bool(flag & FLAG_UNIT_SUB))

    def unit_sub_ununit_topics(self) -> list[str]:
        """Return the topics with subscriptions of a unit that belong to no unit themselves."""
        return self._topics_where(lambda flag: flag & (FLAG_UNIT | FLAG_UNIT_SUB) == FLAG_UNIT_SUB)

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
            self._route_nums -= len(self._queues.pop(topic, ()))
        else:
            for broker_name in self._clusters.get(cluster_name, {}):
                self.delete_topic_of_broker(topic, broker_name)
        self._encoded.clear()

    def delete_topic_of_broker(self, topic: str, broker_name: str) -> None:
        """Remove one broker's queues of a topic."""
        queues = self._queues.get(topic)
        if queues is not None and broker_name in queues:
            left = {name: data for name, data in queues.items() if name != broker_name}
            if left:
                self._queues[topic] = left
            else:
                del self._queues[topic]
            self._route_nums -= 1
            self._encoded.clear()

    def wipe_write_perm(self, broker_name: str) -> int:
        """Forbid writing to all topics of a broker until it registers again; return how many."""
        return self._change_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Allow reading and writing of all topics of a broker; return how many."""
        return self._change_perm(broker_name, lambda _: PERM_READ | PERM_WRITE)

    # Inside.

    def _require_free(self, identity: BrokerIdentity, owner: object | None) -> None:
        """Refuse a registration whose name or address belongs to another broker that lives."""
        address = identity.broker_addr
        data = self._brokers.get(identity.broker_name)
        held = data.broker_addrs.get(identity.broker_id) if data is not None else None
        if (
            held is not None
            and held != address
            and not self._may_change(held, owner)
            and not self._may_succeed(identity, held, owner)
        ):
            self._refuse(
                identity,
                f"broker {identity.broker_name} with id {identity.broker_id} is registered from "
                f"{held}; another address may have its name when it has unregistered, its "
                f"connection is closed, or it has been silent for {BROKER_EXPIRED_S:.0f} s",
            )
        live = self._live.get(address)
        if live is not None and not self._may_change(address, owner):
            registered = live.identity
            same = (registered.cluster_name, registered.broker_name, registered.broker_id)
            if same != (identity.cluster_name, identity.broker_name, identity.broker_id):
                self._refuse(
                    identity,
                    f"{address} is registered as broker {registered.broker_name} with id "
                    f"{registered.broker_id} of cluster {registered.cluster_name}",
                )

    def _may_succeed(self, identity: BrokerIdentity, held: str, owner: object | None) -> bool:
        """Return whether a promoted slave takes the name of a master that fell silent."""
        own = self._live.get(identity.broker_addr)
        return (
            identity.broker_id == MASTER_ID
            and self._reigns.later_than_known(identity.broker_name, identity.epoch)
            and own is not None
            and own.identity.broker_name == identity.broker_name
            and own.owners[0] is owner
            and self._live[held].heard_at <= self._clock.monotonic() - MASTER_SILENT_S
        )

    def _may_change(self, address: str, owner: object | None) -> bool:
        live = self._live[address]
        return live.owners[0] is owner or self._is_expired(live)

    def _refuse(self, identity: BrokerIdentity, reason: str) -> NoReturn:
        self._counted_log.report(
            logger,
            logging.WARNING,
            "registration of a live broker by another peer refused",
            f"broker_name={identity.broker_name}",
            "broker_id=%d address=%s reason=%s",
            identity.broker_id,
            identity.broker_addr,
            reason,
        )
        raise RequestRefusedError(ResponseCode.NO_PERMISSION, reason)

    def _is_expired(self, live: LiveBroker) -> bool:
        return live.heard_at <= self._clock.monotonic() - BROKER_EXPIRED_S

    def _is_of_new_cluster(self, known: BrokerData, identity: BrokerIdentity) -> bool:
        """Return whether a registration moves a broker: a slave does not move its master."""
        if known.cluster == identity.cluster_name:
            return False
        return identity.broker_id == MASTER_ID or MASTER_ID not in known.broker_addrs

    def _put_address(self, data: BrokerData, identity: BrokerIdentity) -> bool:
        """Store an address; return whether the broker had none under this id."""
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
            self._live.pop(before, None)
            self._filter_servers.pop(before, None)
        return before is None

    def _tell_of_masters(self) -> None:
        changed, self._changed_masters = self._changed_masters, set()
        for broker_name in changed:
            for listener in self.master_listeners:
                listener(broker_name)

    def _put_queues(self, broker_name: str, topics: TopicConfigSerializeWrapper) -> None:
        for topic, config in topics.topic_config_table.items():
            alone = self._shared.of(broker_name, config)
            before = self._queues.get(topic)
            self._queues[topic] = alone if before is None else {**before, **alone}
            self._route_nums += before is None or broker_name not in before
        self._encoded.clear()

    def _require_room(
        self,
        identity: BrokerIdentity,
        topics: TopicConfigSerializeWrapper,
        filter_servers: Sequence[str],
    ) -> None:
        table = topics.topic_config_table
        # Everything may be new; only near the limit it matters what is.
        if self._route_nums + len(table) > ROUTES_MAX:
            name = identity.broker_name
            added = sum(name not in self._queues.get(topic, ()) for topic in table)
            if added and self._route_nums + added > ROUTES_MAX:
                raise RequestRefusedError(
                    ResponseCode.SYSTEM_ERROR, f"the limit of {ROUTES_MAX} routes is reached"
                )
        require_short((identity.broker_name, identity.cluster_name, *table), filter_servers)

    def _delete_topics_but(self, kept: Container[str], broker_name: str) -> None:
        gone = [
            topic
            for topic, queues in self._queues.items()
            if broker_name in queues and topic not in kept
        ]
        for topic in gone:
            logger.info("topic not registered any more: topic=%s broker=%s", topic, broker_name)
            self.delete_topic_of_broker(topic, broker_name)

    def _master_of(self, data: BrokerData) -> RegisterResult:
        master_addr = data.broker_addrs.get(MASTER_ID)
        master = self._live.get(master_addr) if master_addr is not None else None
        if master_addr is None or master is None:
            return RegisterResult()
        return RegisterResult(master.identity.ha_server_addr, master_addr)

    def _remove(self, address: str) -> None:
        """Remove an address, and the broker's queues with its last address."""
        live = self._live.pop(address)
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
            self._tell_of_masters()
            return
        self._changed_masters.discard(data.broker_name)
        del self._brokers[data.broker_name]
        self._leave_cluster(data)
        for topic in [
            topic for topic, queues in self._queues.items() if data.broker_name in queues
        ]:
            self.delete_topic_of_broker(topic, data.broker_name)

    def _leave_cluster(self, data: BrokerData) -> None:
        names = self._clusters.get(data.cluster)
        if names is not None:
            names.pop(data.broker_name, None)
            if not names:
                del self._clusters[data.cluster]

    def _topics_where(self, accepts: Callable[[int], bool]) -> list[str]:
        return [
            topic
            for topic, queues in self._queues.items()
            if accepts(_first(queues.values()).topic_sys_flag)
        ]

    def _change_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        changed = 0
        # Of all topics with the same queues the change makes one table, not thousands.
        made: dict[int, dict[str, QueueData]] = {}
        for topic, queues in self._queues.items():
            if (queue_data := queues.get(broker_name)) is not None:
                other = made.get(id(queues))
                if other is None:
                    perm = change(queue_data.perm)
                    changed_data = msgspec.structs.replace(queue_data, perm=perm)
                    other = made[id(queues)] = {**queues, broker_name: changed_data}
                self._queues[topic] = other
                changed += 1
        self._encoded.clear()
        return changed


def _first(queue_datas: Iterable[QueueData]) -> QueueData:
    return next(iter(queue_datas))
