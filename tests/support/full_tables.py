"""Fill a broker's tables to their default limits, as hostile clients would.

The services' methods fill them, because a hundred thousand requests would take minutes.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.clients.consumers import ConsumerMember
from broker_core.clients.producers import ProducerMember
from broker_core.clients.rebalance_locks import LockedQueue
from broker_core.config.limits import LIMITS
from broker_core.message.subscription import SubscriptionGroupConfig, build_subscription
from broker_core.message.topic_config import QUEUE_NUMS_MAX, TopicConfig
from broker_core.namesrv.identity import BrokerIdentity
from broker_core.namesrv.routes import BROKERS_MAX, ROUTES_MAX
from broker_core.protocol.bodies.registration import TopicConfigSerializeWrapper
from tests.support.broker import running_broker

if TYPE_CHECKING:
    from broker_core.broker import Broker
    from broker_core.message.subscription import SubscriptionData
    from broker_core.protocol.command import RemotingCommand

CROWD = "crowd"
MANY_TOPICS = "reads-many-topics"
WIDE = "wide"
WIDE_GROUP = "reads-the-wide-topic"
CONNECTIONS = 5_000
PER_CONNECTION = LIMITS.member_nums_max // CONNECTIONS
PAIR_COUNT = 11
"""How much a pair of group and topic with one offset counts towards consumerOffsetNumsMax."""
STATM = Path("/proc/self/statm")
NAME_PAD = "-of-somebody-who-fills-tables"


class Member:
    """A connection without a socket that accepts everything sent to it."""

    is_open = True

    def __init__(self, number: int) -> None:
        self.remote_address = f"10.{number >> 8}.{number & 255}.1:{10_000 + number}"
        self.frames = 0

    def send(self, _: RemotingCommand | bytes) -> None:
        self.frames += 1

    def close(self) -> None:
        pass


def topic_name(number: int) -> str:
    return f"topic-{number}{NAME_PAD}"


def group_name(number: int) -> str:
    return f"group-{number}{NAME_PAD}"


def fill_topics_and_groups(broker: Broker) -> None:
    topics, groups = broker.storage.topics, broker.storage.groups
    topics.put(_topic(WIDE, QUEUE_NUMS_MAX))
    number = 0
    while len(topics.table) < LIMITS.topic_nums_max:
        topics.put(_topic(topic_name(number), 8))
        number += 1
    groups.put(SubscriptionGroupConfig(group_name=WIDE_GROUP))
    number = 0
    while len(groups.table) < LIMITS.consumer_group_nums_max:
        groups.put(SubscriptionGroupConfig(group_name=group_name(number)))
        number += 1


def fill_members(broker: Broker) -> list[Member]:
    """Make every connection a member of one large group and of several small ones."""
    now = broker.foundation.clock.monotonic()
    connections = [Member(number) for number in range(CONNECTIONS)]
    places = CONNECTIONS * (PER_CONNECTION - 1)
    groups = min(places, LIMITS.consumer_group_nums_max - 100)
    one = [build_subscription(topic_name(0), "*", 1)]
    for number, connection in enumerate(connections):
        client_id = f"client-{number}{NAME_PAD}"
        _consume(broker, connection, CROWD, client_id, now, one)
        # The last connection reserves its last slot for the group with all other subscriptions.
        own = PER_CONNECTION - 1 - (number == CONNECTIONS - 1)
        for place in range(own):
            group = group_name((number * (PER_CONNECTION - 1) + place) % groups)
            subscribed = [build_subscription(topic_name(place), "*", 1)]
            _consume(broker, connection, group, client_id, now, subscribed)
        for place in range(PER_CONNECTION):
            broker.clients.producers.register(
                connection,
                f"producers-{number * PER_CONNECTION + place}{NAME_PAD}",
                ProducerMember(client_id, "JAVA", 407, now, 1),
            )
    left = LIMITS.subscription_nums_max - groups - 1
    many = [build_subscription(topic_name(number), "*", 1) for number in range(left)]
    _consume(broker, connections[-1], MANY_TOPICS, "client", now, many)
    return connections


def fill_offsets(broker: Broker) -> None:
    offsets = broker.storage.offsets
    count = LIMITS.consumer_offset_nums_max - 2 * QUEUE_NUMS_MAX
    for queue_id in range(QUEUE_NUMS_MAX):
        offsets.commit(WIDE_GROUP, WIDE, queue_id, 1)
    for number in range(count // PAIR_COUNT):
        topic = topic_name(number % (LIMITS.topic_nums_max - 100))
        offsets.commit(group_name(number % (LIMITS.consumer_group_nums_max - 100)), topic, 0, 1)


def fill_filters(broker: Broker) -> None:
    filters = broker.storage.filters
    for number in range(LIMITS.consumer_filter_nums_max):
        expression = f"region = 'eu' AND price > {number}"
        target = build_subscription(topic_name(number), expression, 1, "SQL92")
        filters.register(group_name(number), [target])


def fill_locks(broker: Broker) -> None:
    hosts = LIMITS.queue_lock_nums_max // LIMITS.host_queue_lock_nums_max
    assert hosts > 0
    for host in range(hosts):
        for place in range(LIMITS.host_queue_lock_nums_max // LIMITS.client_lock_nums_max):
            queues = [
                LockedQueue(topic_name(number), "broker-a", number)
                for number in range(LIMITS.client_lock_nums_max)
            ]
            group = f"locking-{host}-{place}{NAME_PAD}"
            broker.clients.locks.lock(group, queues, f"client-{host}-{place}", f"10.0.0.{host}")


def _topic(name: str, queue_nums: int) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queue_nums, write_queue_nums=queue_nums)


def _consume(
    broker: Broker,
    connection: Member,
    group: str,
    client_id: str,
    now: float,
    subscriptions: list[SubscriptionData],
) -> None:
    broker.clients.consumers.register(
        connection,
        group,
        ConsumerMember(client_id, "JAVA", 407, now),
        "CONSUME_PASSIVELY",
        "CLUSTERING",
        "CONSUME_FROM_LAST_OFFSET",
        subscriptions,
        notify=False,
    )


def fill_routes(broker: Broker) -> None:
    """Register other brokers until the name server's table is full."""
    assert broker.naming.name_server is not None
    routes = broker.naming.name_server.routes
    left = ROUTES_MAX - len(routes.topics())
    each = left // (BROKERS_MAX - 1)
    for number in range(BROKERS_MAX - 1):
        table = {
            name: _topic(name, 1 + number)
            for name in (f"route-{number}-{place}{NAME_PAD}" for place in range(each))
        }
        address = f"10.{number >> 8}.{number & 255}.2:{20_000 + number}"
        identity = BrokerIdentity(f"cluster-{number}", f"broker-{number}", 0, address, address)
        routes.register(identity, TopicConfigSerializeWrapper(topic_config_table=table))


async def memory_growth(directory: Path) -> tuple[int, dict[str, int]]:
    """Fill every table of a broker; return the process's growth in bytes, in total and per step."""
    async with running_broker(directory) as broker:
        begun = before = resident_bytes()
        steps = {}
        for fill in (
            fill_topics_and_groups,
            fill_members,
            fill_offsets,
            fill_filters,
            fill_locks,
            fill_routes,
        ):
            fill(broker)
            after = resident_bytes()
            steps[fill.__name__] = after - before
            before = after
        # Write the topics, as a broker does in the first seconds.
        await broker.storage.topics.writer.write()
        await broker.storage.groups.writer.write()
        await broker.storage.offsets.persist_in_thread()
        await broker.storage.filters.persist_in_thread()
        steps["written"] = resident_bytes() - before
        return resident_bytes() - begun, steps


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    gc.collect()
    return int(STATM.read_text().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    sys.stdout.write(json.dumps(asyncio.run(memory_growth(Path(sys.argv[1])))))
