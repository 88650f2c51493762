"""Whatever brokers do, the route table holds what its docstring promises."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker_core.message.data_version import DataVersion
from broker_core.message.topic_config import TopicConfig
from broker_core.namesrv.routes import BrokerIdentity, RouteTable
from broker_core.protocol.bodies.registration import TopicConfigSerializeWrapper
from broker_core.protocol.bodies.route import TopicRouteData
from tests.support.clock import ManualClock

TOPICS = ["T", "U", "V"]
IDENTITIES = st.builds(
    BrokerIdentity,
    st.sampled_from(["c", "d"]),
    st.sampled_from(["a", "b"]),
    st.integers(0, 1),
    st.sampled_from(["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"]),
)


class RouteTableMachine(RuleBasedStateMachine):
    """Brokers come, move, change names, go silent, go."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.table = RouteTable(self.clock)
        self.owners = [object(), object()]
        self.counter = 0

    @rule(
        identity=IDENTITIES,
        topics=st.sets(st.sampled_from(TOPICS)),
        owner=st.integers(0, 1),
        is_new=st.booleans(),
    )
    def register(
        self, identity: BrokerIdentity, topics: set[str], owner: int, is_new: bool
    ) -> None:
        self.counter += is_new
        wrapper = TopicConfigSerializeWrapper(
            data_version=DataVersion(counter=self.counter),
            topic_config_table={topic: TopicConfig(topic_name=topic) for topic in topics},
        )
        self.table.register(identity, wrapper, owner=self.owners[owner])

    @rule(identity=IDENTITIES)
    def unregister(self, identity: BrokerIdentity) -> None:
        self.table.unregister(identity)

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
        self.table.wipe_write_perm(name)

    @invariant()
    def a_broker_is_known_exactly_while_an_address_of_it_lives(self) -> None:
        table = self.table
        known = {
            (address, name)
            for name, data in table._brokers.items()
            for address in data.broker_addrs.values()
        }
        assert known == {
            (address, live.identity.broker_name) for address, live in table._live.items()
        }
        assert all(data.broker_addrs for data in table._brokers.values())

    @invariant()
    def clusters_and_brokers_name_each_other(self) -> None:
        info = self.table.cluster_info()
        assert {
            name: cluster for cluster, names in info.cluster_addr_table.items() for name in names
        } == {name: data.cluster for name, data in info.broker_addr_table.items()}
        assert sum(map(len, info.cluster_addr_table.values())) == len(info.broker_addr_table)

    @invariant()
    def a_topic_is_known_exactly_while_a_known_broker_has_it(self) -> None:
        for topic in TOPICS:
            assert (topic in self.table.topics()) == (self.table.route(topic) is not None)
        for queues in self.table._queues.values():
            assert queues.keys() <= self.table._brokers.keys()

    @invariant()
    def what_is_kept_encoded_is_what_would_be_encoded_now(self) -> None:
        for topic in TOPICS:
            body = self.table.encoded_route(topic, is_standard=True)
            assert (body and TopicRouteData.decode(body)) == self.table.route(topic)


TestRouteTable = RouteTableMachine.TestCase
