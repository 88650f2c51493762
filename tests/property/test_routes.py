"""The route table keeps the guarantees in its docstring, whatever brokers do."""

from __future__ import annotations

import contextlib

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker_core.errors import RequestRefusedError
from broker_core.message.data_version import DataVersion
from broker_core.message.topic_config import TopicConfig
from broker_core.namesrv.identity import BrokerIdentity
from broker_core.namesrv.routes import RouteTable
from broker_core.protocol.bodies.registration import TopicConfigSerializeWrapper
from broker_core.protocol.bodies.route import TopicRouteData
from broker_core.steps import run_to_end
from tests.support.clock import ManualClock

TOPICS = ["T", "U", "V"]
ADDRESSES = ["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"]
IDENTITIES = st.builds(
    BrokerIdentity,
    st.sampled_from(["c", "d"]),
    st.sampled_from(["a", "b"]),
    st.integers(0, 1),
    st.sampled_from(ADDRESSES),
)


class RouteTableMachine(RuleBasedStateMachine):
    """Brokers register, move, change names, go silent and leave."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.table = RouteTable(self.clock)
        self.owners: list[object | None] = [object(), object(), None]
        self.counter = 0
        self.name_of: dict[str, str] = {}
        """The broker name under which an address last registered."""

    @rule(
        identity=IDENTITIES,
        topics=st.sets(st.sampled_from(TOPICS)),
        owner=st.integers(0, 2),
        is_new=st.booleans(),
        is_proven=st.booleans(),
    )
    def register(
        self,
        identity: BrokerIdentity,
        topics: set[str],
        owner: int,
        is_new: bool,
        is_proven: bool,
    ) -> None:
        self.counter += is_new
        wrapper = TopicConfigSerializeWrapper(
            data_version=DataVersion(counter=self.counter),
            topic_config_table={topic: TopicConfig(topic_name=topic) for topic in topics},
        )
        try:
            self.table.register(identity, wrapper, owner=self.owners[owner], is_proven=is_proven)
        except RequestRefusedError:
            assert not is_proven
            return
        self.name_of[identity.broker_addr] = identity.broker_name

    @rule(identity=IDENTITIES, owner=st.integers(0, 2))
    def unregister(self, identity: BrokerIdentity, owner: int) -> None:
        with contextlib.suppress(RequestRefusedError):
            self.table.unregister(identity, self.owners[owner])

    @rule(owner=st.integers(0, 1))
    def lose(self, owner: int) -> None:
        self.table.owner_lost(self.owners[owner])

    @rule(seconds=st.sampled_from([1, 60, 119, 121]))
    def wait(self, seconds: int) -> None:
        self.clock.advance_ms(seconds * 1000)
        self.table.expire()

    @rule(topic=st.sampled_from(TOPICS), cluster=st.none() | st.sampled_from(["c", "d"]))
    def delete(self, topic: str, cluster: str | None) -> None:
        self.table.delete_topic(topic, cluster)

    @rule(name=st.sampled_from(["a", "b"]))
    def wipe(self, name: str) -> None:
        run_to_end(self.table.wipe_write_perm(name))

    @invariant()
    def a_broker_is_known_exactly_while_an_address_of_it_lives(self) -> None:
        brokers = self.table.cluster_info().broker_addr_table
        known = {
            (address, name)
            for name, data in brokers.items()
            for address in data.broker_addrs.values()
        }
        live = [a for a in ADDRESSES if self.table.data_version_of(a) is not None]
        assert known == {(address, self.name_of[address]) for address in live}
        assert all(data.broker_addrs for data in brokers.values())

    @invariant()
    def clusters_and_brokers_name_each_other(self) -> None:
        info = self.table.cluster_info()
        assert {
            name: cluster for cluster, names in info.cluster_addr_table.items() for name in names
        } == {name: data.cluster for name, data in info.broker_addr_table.items()}
        assert sum(map(len, info.cluster_addr_table.values())) == len(info.broker_addr_table)

    @invariant()
    def a_topic_is_known_exactly_while_a_known_broker_has_it(self) -> None:
        brokers = self.table.cluster_info().broker_addr_table
        for topic in TOPICS:
            route = self.table.route(topic)
            assert (topic in self.table.topics()) == (route is not None)
            queues = route.queue_datas if route is not None else []
            assert {queue.broker_name for queue in queues} <= brokers.keys()

    @invariant()
    def what_is_kept_encoded_is_what_would_be_encoded_now(self) -> None:
        for topic in TOPICS:
            body = self.table.encoded_route(topic, is_standard=True)
            assert (body and TopicRouteData.decode(body)) == self.table.route(topic)


TestRouteTable = RouteTableMachine.TestCase
