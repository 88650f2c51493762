"""Composition of POP: the engine, redelivery, waiting pops and request modes."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.errors import RemotingError
from broker_core.metadata.request_modes import RequestModes
from broker_core.pop.engine import PopEngine
from broker_core.pop.leases import Leases
from broker_core.pop.orders import Orders
from broker_core.pop.pollers import Pollers
from broker_core.pop.revival import Revival
from broker_core.pop.revive_log import ReviveLog
from broker_core.pop.takeover import Takeover
from broker_core.protocol.bodies.route import TopicRouteData
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.steps import run_for, run_to_end
from broker_core.timers.recovery import may_be_foreign

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker_core.clock import Clock
    from broker_core.composition.foundation import Foundation
    from broker_core.composition.naming import NamingParts
    from broker_core.delivery.parked_pulls import ParkedPulls
    from broker_core.message.message import MessageExt
    from broker_core.metadata.consumer_offsets import ConsumerOffsets
    from broker_core.metadata.subscription_groups import SubscriptionGroups
    from broker_core.metadata.topics import Topics
    from broker_core.pop.checkpoint import QueueKey
    from broker_core.remoting.client import RemotingClient
    from broker_core.stats.counters import BrokerStats
    from broker_core.store.message_store import MessageStore
    from broker_core.store.results import PutMessageResult
    from broker_core.trace.stored import StoredTrace

ROUTE_TIMEOUT_S = 3.0
ROUTES_KEPT = 1_024
ROUTE_FRESH_S = 5.0
TURN_S = 0.004


@dataclass(frozen=True, slots=True)
class PopParts:
    """The parts of POP."""

    engine: PopEngine
    revival: Revival
    takeover: Takeover
    store: MessageStore
    pollers: Pollers
    modes: RequestModes
    clock: Clock

    def load(self) -> None:
        """Read the leases from the log before the broker starts as a master. Blocks."""
        self.engine.clear()
        run_to_end(self.engine.log.replay_steps())
        self._replayed()

    async def load_in_turns(self) -> None:
        """Read the leases after a promotion; no turn of the event loop takes much over TURN_S."""
        self.engine.clear()
        steps = self.engine.log.replay_steps()
        while run_for(TURN_S, self.clock.monotonic, steps) is None:
            await self.clock.sleep(0)
        self._replayed()

    def _replayed(self) -> None:
        self.engine.orders.schedule_all()
        self.takeover.begin(may_be_foreign=may_be_foreign(self.store))


def build_pop(
    foundation: Foundation,
    store: MessageStore,
    topics: Topics,
    groups: SubscriptionGroups,
    offsets: ConsumerOffsets,
    parked_pulls: ParkedPulls,
    stats: BrokerStats,
    trace: StoredTrace,
) -> PopParts:
    """Build the parts, and write consumer offsets only after the records of the leases."""
    config, limits, clock = (
        foundation.configuration.broker,
        foundation.configuration.limits,
        foundation.clock,
    )
    leases = Leases(limits)
    orders = Orders()
    log = ReviveLog(
        config.broker_cluster_name,
        config.broker_name,
        store,
        topics,
        offsets,
        leases,
        orders,
        clock,
        foundation.steady,
    )
    engine = PopEngine(store, topics, offsets, leases, orders, log, clock)
    revival = Revival(engine, store, topics, groups, clock)
    takeover = Takeover(log, leases, offsets, store, clock)
    takeover.on_finished = revival.wake
    pollers = Pollers(parked_pulls, clock, limits)
    engine.on_unblocked = revival.on_unblocked = pollers.wake
    parked_pulls.on_group_ended = pollers.end_group
    _report_redeliveries(revival, stats, trace)

    def note_progress() -> None:
        if not foundation.role.is_slave:
            log.note_progress()

    async def until_durable() -> bool:
        if not log.has_records:
            return True
        return await store.flush()

    offsets.note_progress = note_progress
    offsets.until_durable = until_durable
    offsets.on_topic_deleted = engine.forget_topic
    offsets.on_group_deleted = engine.forget_group
    modes = RequestModes(foundation.document("messageRequestMode.json"), limits)
    return PopParts(engine, revival, takeover, store, pollers, modes, clock)


def _report_redeliveries(revival: Revival, stats: BrokerStats, trace: StoredTrace) -> None:
    """Count redelivered messages, and trace dead letters."""

    def retried(
        _message: MessageExt,
        _table: dict[str, str],
        topic: str,
        _queue_id: int,
        result: PutMessageResult,
        _key: QueueKey,
    ) -> None:
        stats.put_again(topic, result.wrote_size)

    def dead(
        message: MessageExt,
        table: dict[str, str],
        topic: str,
        queue_id: int,
        result: PutMessageResult,
        key: QueueKey,
    ) -> None:
        stats.put_again(topic, result.wrote_size)
        trace.dead(message, table, (topic, queue_id), result, key.group, "")

    revival.on_retried, revival.on_dead = retried, dead


def queues_of(
    foundation: Foundation, topics: Topics, naming: NamingParts, client: RemotingClient
) -> Callable[[str], Awaitable[list[tuple[str, int]]]]:
    """Return a function that finds a topic's queues on all brokers of the cluster.

    Without an answer from a name server, it returns this broker's queues.
    """
    clock, own_name = foundation.clock, foundation.configuration.broker.broker_name
    routes: OrderedDict[str, tuple[float, list[tuple[str, int]]]] = OrderedDict()

    async def find(topic: str) -> list[tuple[str, int]]:
        kept = routes.get(topic)
        if kept is not None and clock.monotonic() - kept[0] < ROUTE_FRESH_S:
            return kept[1]
        route = await _route(topic)
        if route is None:
            found = topics.find(topic)
            return [(own_name, each) for each in range(found.read_queue_nums if found else 0)]
        queues = [
            (each.broker_name, queue_id)
            for each in route.queue_datas
            for queue_id in range(each.read_queue_nums)
        ]
        routes[topic] = clock.monotonic(), queues
        if len(routes) > ROUTES_KEPT:
            routes.popitem(last=False)
        return queues

    async def _route(topic: str) -> TopicRouteData | None:
        if naming.name_server is not None:
            return naming.name_server.routes.route(topic)
        for address in naming.registration.name_servers:
            request = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
            try:
                answer = await client.request(address, request, ROUTE_TIMEOUT_S)
                if answer.code == ResponseCode.SUCCESS:
                    return TopicRouteData.decode(bytes(answer.body))
            except (RemotingError, ValueError):
                continue
        return None

    return find
