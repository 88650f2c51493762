"""RouteTable: what the brokers have told of themselves.

A broker is known from its registration until it unregisters, its connection closes, or nothing was
heard of it for 120 s. Only masters (id 0) tell of queues.

Invariant: a broker name is in `_brokers` exactly when at least one of its addresses is in `_live`.
Invariant: a topic is in `_queues` exactly when at least one broker has queues of it.
Source: namesrv/routeinfo/RouteInfoManager.java (4.9.7).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.errors import RequestRefusedError
from broker_core.message.topic_config import PERM_READ, PERM_WRITE
from broker_core.protocol.bodies.cluster import ClusterInfo
from broker_core.protocol.bodies.route import MASTER_ID, BrokerData, QueueData, TopicRouteData
from broker_core.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from broker_core.clock import Clock
    from broker_core.message.data_version import DataVersion
    from broker_core.protocol.bodies.registration import TopicConfigSerializeWrapper

logger = logging.getLogger(__name__)

BROKER_EXPIRED_S = 120.0
BROKERS_MAX = 10_000
TOPICS_MAX = 500_000

UNIT_FLAG = 1
UNIT_SUB_FLAG = 2


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """Who registers. `broker_addr` is "ip:port" as clients shall use it."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str
    ha_server_addr: str = ""


@dataclass(slots=True)
class LiveBroker:
    """A broker that was heard of; `owner` is its connection, None in our own process."""

    identity: BrokerIdentity
    data_version: DataVersion
    owner: object | None
    heard_at: float


@dataclass(frozen=True, slots=True)
class RegisterResult:
    """What a slave learns of its master; empty when there is none."""

    ha_server_addr: str = ""
    master_addr: str = ""


class RouteTable:
    """Registers brokers, finds routes. Event loop only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._clusters: dict[str, dict[str, None]] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._live: dict[str, LiveBroker] = {}
        self._queues: dict[str, dict[str, QueueData]] = {}
        self._filter_servers: dict[str, list[str]] = {}
        # Encoded answers to GET_ROUTEINFO_BY_TOPIC: every client asks for every topic each 30 s.
        self._encoded: dict[tuple[str, bool], bytes] = {}

    # Registration.

    def register(
        self,
        identity: BrokerIdentity,
        topics: TopicConfigSerializeWrapper,
        filter_servers: Sequence[str] = (),
        owner: object | None = None,
    ) -> RegisterResult:
        """Take a broker's word for itself; topics it does not name stay as they are.

        Raises:
            RequestRefusedError: there are too many brokers or topics.
        """
        known = self._brokers.get(identity.broker_name)
        if known is None and len(self._brokers) >= BROKERS_MAX:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"more than {BROKERS_MAX} brokers are not registered"
            )
        added = topics.topic_config_table.keys() - self._queues.keys()
        if added and len(self._queues) + len(added) > TOPICS_MAX:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"more than {TOPICS_MAX} topics are not registered"
            )
        renamed = self._live.get(identity.broker_addr)
        if renamed is not None and renamed.identity.broker_name != identity.broker_name:
            self._remove(identity.broker_addr)
        if known is not None and known.cluster != identity.cluster_name:
            self._leave_cluster(known)
            known.cluster = identity.cluster_name
            self._encoded.clear()
        data = known or BrokerData(
            broker_addrs={}, broker_name=identity.broker_name, cluster=identity.cluster_name
        )
        is_first = self._put_address(data, identity)
        self._brokers[identity.broker_name] = data
        self._clusters.setdefault(identity.cluster_name, {})[identity.broker_name] = None

        address = identity.broker_addr
        before = self._live.get(address)
        version = topics.data_version
        if identity.broker_id == MASTER_ID and (
            is_first or before is None or before.data_version != version
        ):
            self._put_queues(identity.broker_name, topics)
        if before is None:
            logger.info(
                "broker registered: broker_name=%s broker_id=%d address=%s topics=%d",
                identity.broker_name,
                identity.broker_id,
                address,
                len(topics.topic_config_table),
            )
        self._live[address] = LiveBroker(identity, version, owner, self._clock.monotonic())
        if list(filter_servers) != self._filter_servers.get(address, []):
            self._filter_servers[address] = list(filter_servers)
            self._encoded.clear()
        return self._master_of(data) if identity.broker_id != MASTER_ID else RegisterResult()

    def unregister(self, identity: BrokerIdentity) -> None:
        """Forget an address, if it belongs to who says so."""
        live = self._live.get(identity.broker_addr)
        if live is not None and live.identity.broker_name == identity.broker_name:
            self._remove(identity.broker_addr)
            logger.info(
                "broker unregistered: broker_name=%s address=%s",
                identity.broker_name,
                identity.broker_addr,
            )

    def expire(self) -> list[object]:
        """Forget the brokers not heard of for long; return the connections they came over."""
        horizon = self._clock.monotonic() - BROKER_EXPIRED_S
        owners = []
        for address, live in list(self._live.items()):
            if live.heard_at <= horizon:
                logger.warning(
                    "broker expired: broker_name=%s address=%s", live.identity.broker_name, address
                )
                self._remove(address)
                if live.owner is not None:
                    owners.append(live.owner)
        return owners

    def owner_lost(self, owner: object) -> None:
        """Forget the brokers that registered over a connection that ended."""
        for address, live in list(self._live.items()):
            if live.owner is owner:
                logger.warning(
                    "broker disconnected: broker_name=%s address=%s",
                    live.identity.broker_name,
                    address,
                )
                self._remove(address)

    def is_changed(self, broker_addr: str, data_version: DataVersion) -> bool:
        """Say whether a broker's table differs from what it registered last."""
        live = self._live.get(broker_addr)
        return live is None or live.data_version != data_version

    def heard(self, broker_addr: str) -> None:
        """Note that a broker lives."""
        if (live := self._live.get(broker_addr)) is not None:
            live.heard_at = self._clock.monotonic()

    def data_version_of(self, broker_addr: str) -> DataVersion | None:
        """Return the version that a broker registered last."""
        live = self._live.get(broker_addr)
        return None if live is None else live.data_version

    # Routes.

    def route(self, topic: str, order_topic_conf: str | None = None) -> TopicRouteData | None:
        """Return who has a topic, None when nobody has."""
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
        """Return a topic's route as a body, None when nobody has it."""
        key = (topic, is_standard)
        body = self._encoded.get(key)
        if body is None:
            route = self.route(topic)
            if route is None:
                return None
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
        return self._topics_where(lambda flag: bool(flag & UNIT_FLAG))

    def unit_sub_topics(self) -> list[str]:
        """Return the topics with subscriptions of a unit."""
        return self._topics_where(lambda flag: bool(flag & UNIT_SUB_FLAG))

    def unit_sub_ununit_topics(self) -> list[str]:
        """Return the topics with subscriptions of a unit that are themselves of none."""
        return self._topics_where(lambda flag: flag & (UNIT_FLAG | UNIT_SUB_FLAG) == UNIT_SUB_FLAG)

    def system_topics(self) -> tuple[list[str], str | None]:
        """Return cluster and broker names, with the address of a broker that knows the others."""
        names = [*self._clusters, *(name for names in self._clusters.values() for name in names)]
        addresses = (
            address for data in self._brokers.values() for address in data.broker_addrs.values()
        )
        return names, next(addresses, None)

    def delete_topic(self, topic: str, cluster_name: str | None = None) -> None:
        """Forget a topic, of one cluster's brokers when one is named."""
        if cluster_name is None:
            self._queues.pop(topic, None)
        else:
            for broker_name in self._clusters.get(cluster_name, {}):
                self.delete_topic_of_broker(topic, broker_name)
        self._encoded.clear()

    def delete_topic_of_broker(self, topic: str, broker_name: str) -> None:
        """Forget one broker's queues of a topic."""
        queues = self._queues.get(topic)
        if queues is not None:
            queues.pop(broker_name, None)
            if not queues:
                del self._queues[topic]
            self._encoded.clear()

    def wipe_write_perm(self, broker_name: str) -> int:
        """Take writing from all topics of a broker until it registers anew; return how many."""
        return self._change_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Let all topics of a broker be read and written; return how many."""
        return self._change_perm(broker_name, lambda _: PERM_READ | PERM_WRITE)

    # Inside.

    def _put_address(self, data: BrokerData, identity: BrokerIdentity) -> bool:
        """Enter an address; say whether the broker had none under that id."""
        address, broker_id = identity.broker_addr, identity.broker_id
        addresses = data.broker_addrs
        for other_id, other in list(addresses.items()):
            # A slave that became master: one address stands under one id only.
            if other == address and other_id != broker_id:
                del addresses[other_id]
        before = addresses.get(broker_id)
        if before != address:
            addresses[broker_id] = address
            self._encoded.clear()
        if before is not None and before != address:
            logger.warning(
                "broker moved: broker_name=%s broker_id=%d address=%s before=%s",
                identity.broker_name,
                broker_id,
                address,
                before,
            )
            self._live.pop(before, None)
            self._filter_servers.pop(before, None)
        return before is None

    def _put_queues(self, broker_name: str, topics: TopicConfigSerializeWrapper) -> None:
        for topic, config in topics.topic_config_table.items():
            self._queues.setdefault(topic, {})[broker_name] = QueueData(
                broker_name=broker_name,
                perm=config.perm,
                read_queue_nums=config.read_queue_nums,
                topic_sys_flag=config.topic_sys_flag,
                write_queue_nums=config.write_queue_nums,
            )
        self._encoded.clear()

    def _master_of(self, data: BrokerData) -> RegisterResult:
        master_addr = data.broker_addrs.get(MASTER_ID)
        master = self._live.get(master_addr) if master_addr is not None else None
        if master_addr is None or master is None:
            return RegisterResult()
        return RegisterResult(master.identity.ha_server_addr, master_addr)

    def _remove(self, address: str) -> None:
        """Forget an address, and its broker's queues when it was the last one of its name."""
        live = self._live.pop(address)
        self._filter_servers.pop(address, None)
        self._encoded.clear()
        data = self._brokers.get(live.identity.broker_name)
        if data is None:
            return
        for broker_id, other in list(data.broker_addrs.items()):
            if other == address:
                del data.broker_addrs[broker_id]
        if data.broker_addrs:
            return
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
        for queues in self._queues.values():
            if (queue_data := queues.get(broker_name)) is not None:
                queue_data.perm = change(queue_data.perm)
                changed += 1
        self._encoded.clear()
        return changed


def _first(queue_datas: Iterable[QueueData]) -> QueueData:
    return next(iter(queue_datas))
