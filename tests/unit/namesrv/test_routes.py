from __future__ import annotations

import pytest

from broker_core.errors import RequestRefusedError
from broker_core.message.data_version import DataVersion
from broker_core.message.topic_config import TopicConfig
from broker_core.namesrv import routes as routes_module
from broker_core.namesrv.routes import BrokerIdentity, RegisterResult, RouteTable
from broker_core.protocol.bodies.registration import TopicConfigSerializeWrapper
from tests.support.clock import ManualClock

MASTER = BrokerIdentity("c", "b", 0, "10.0.0.1:10911", "10.0.0.1:10912")
SLAVE = BrokerIdentity("c", "b", 1, "10.0.0.2:10911", "10.0.0.2:10912")
OTHER = BrokerIdentity("c2", "b2", 0, "10.0.0.3:10911")


def topics(*names: str, counter: int = 1, **fields: int) -> TopicConfigSerializeWrapper:
    return TopicConfigSerializeWrapper(
        data_version=DataVersion(counter=counter, timestamp=1),
        topic_config_table={name: TopicConfig(topic_name=name, **fields) for name in names},  # type: ignore[arg-type]
    )


def perms(table: RouteTable, topic: str) -> dict[str, int]:
    route = table.route(topic)
    return {} if route is None else {each.broker_name: each.perm for each in route.queue_datas}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def table(clock: ManualClock) -> RouteTable:
    return RouteTable(clock)


def test_a_registered_topic_has_a_route(table: RouteTable) -> None:
    table.register(MASTER, topics("T", read_queue_nums=4, write_queue_nums=8))

    route = table.route("T")

    assert route is not None
    (queue_data,) = route.queue_datas
    assert (queue_data.read_queue_nums, queue_data.write_queue_nums) == (4, 8)
    assert route.broker_datas[0].broker_addrs == {0: "10.0.0.1:10911"}
    assert table.route("U") is None
    assert table.encoded_route("U", is_standard=True) is None


def test_a_slave_is_in_the_route_and_brings_no_queues(table: RouteTable) -> None:
    table.register(SLAVE, topics("T"))
    assert table.topics() == []

    table.register(MASTER, topics("T"))

    route = table.route("T")
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {1: "10.0.0.2:10911", 0: "10.0.0.1:10911"}
    assert len(route.queue_datas) == 1


def test_a_slave_learns_its_master(table: RouteTable) -> None:
    assert table.register(SLAVE, topics()) == RegisterResult()
    assert table.register(MASTER, topics()) == RegisterResult()

    assert table.register(SLAVE, topics()) == RegisterResult("10.0.0.1:10912", "10.0.0.1:10911")


def test_a_slave_that_became_master_stands_under_one_id(table: RouteTable) -> None:
    table.register(MASTER, topics("T"))
    table.register(SLAVE, topics("T"))
    table.unregister(MASTER)

    table.register(BrokerIdentity("c", "b", 0, SLAVE.broker_addr), topics("T"))

    route = table.route("T")
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {0: SLAVE.broker_addr}


def test_queues_follow_the_version_of_the_table(table: RouteTable) -> None:
    table.register(MASTER, topics("T", perm=6))
    table.register(MASTER, topics("T", perm=4))
    assert perms(table, "T") == {"b": 6}

    table.register(MASTER, topics("T", perm=4, counter=2))
    assert perms(table, "T") == {"b": 4}


def test_topics_not_named_stay(table: RouteTable) -> None:
    table.register(MASTER, topics("T"))

    table.register(MASTER, topics("U", counter=2))

    assert table.topics() == ["T", "U"]


def test_a_wiped_permission_stays_until_the_table_changes(table: RouteTable) -> None:
    table.register(MASTER, topics("T", "U", perm=7))
    table.register(OTHER, topics("T"))

    assert table.wipe_write_perm("b") == 2
    assert perms(table, "T") == {"b": 5, "b2": 6}
    table.register(MASTER, topics("T", "U", perm=7))
    assert perms(table, "T") == {"b": 5, "b2": 6}
    assert table.add_write_perm("b") == 2
    assert perms(table, "T") == {"b": 6, "b2": 6}
    table.register(MASTER, topics("T", "U", perm=7, counter=2))
    assert perms(table, "T") == {"b": 7, "b2": 6}


def test_a_broker_is_forgotten_with_its_last_address(table: RouteTable) -> None:
    table.register(MASTER, topics("T"))
    table.register(SLAVE, topics("T"))
    table.register(OTHER, topics("T", "U"))

    table.unregister(MASTER)
    assert perms(table, "T") == {"b": 6, "b2": 6}
    table.unregister(SLAVE)

    assert perms(table, "T") == {"b2": 6}
    assert table.cluster_info().cluster_addr_table == {"c2": ["b2"]}
    assert list(table.cluster_info().broker_addr_table) == ["b2"]
    table.unregister(OTHER)
    assert table.topics() == []


def test_nobody_unregisters_anothers_address(table: RouteTable) -> None:
    table.register(MASTER, topics("T"))

    table.unregister(BrokerIdentity("c", "stranger", 0, MASTER.broker_addr))

    assert perms(table, "T") == {"b": 6}


def test_a_broker_not_heard_of_for_two_minutes_is_forgotten(
    table: RouteTable, clock: ManualClock
) -> None:
    owner = object()
    table.register(MASTER, topics("T"), owner=owner)
    table.register(OTHER, topics("U"))

    clock.advance_ms(60_000)
    table.heard(OTHER.broker_addr)
    clock.advance_ms(59_999)
    assert table.expire() == []
    clock.advance_ms(1)

    assert table.expire() == [owner]
    assert table.topics() == ["U"]


def test_a_broker_is_forgotten_with_its_connection(table: RouteTable) -> None:
    first, second = object(), object()
    table.register(MASTER, topics("T"), owner=first)
    table.register(MASTER, topics("T"), owner=second)  # it came back before the loss was seen

    table.owner_lost(first)
    assert table.topics() == ["T"]
    table.owner_lost(second)

    assert table.topics() == []


def test_a_broker_that_moved_leaves_no_old_address(table: RouteTable, clock: ManualClock) -> None:
    table.register(MASTER, topics("T"))
    moved = BrokerIdentity("c", "b", 0, "10.0.0.9:10911")

    table.register(moved, topics("T"))

    route = table.route("T")
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {0: "10.0.0.9:10911"}
    assert table.data_version_of(MASTER.broker_addr) is None


def test_a_broker_that_changed_cluster_is_in_the_new_one_only(table: RouteTable) -> None:
    table.register(MASTER, topics("T"))

    table.register(BrokerIdentity("c9", "b", 0, MASTER.broker_addr), topics("T"))

    assert table.cluster_info().cluster_addr_table == {"c9": ["b"]}
    assert table.topics_of_cluster("c") == []
    assert table.topics_of_cluster("c9") == ["T"]


def test_a_topic_is_deleted_everywhere_or_in_one_cluster(table: RouteTable) -> None:
    table.register(MASTER, topics("T", "U"))
    table.register(OTHER, topics("T", "U"))

    table.delete_topic("T", "c2")
    assert perms(table, "T") == {"b": 6}
    table.delete_topic("U")

    assert table.topics() == ["T"]
    table.delete_topic("T", "c")
    assert table.topics() == []
    table.delete_topic("T", "nowhere")


def test_topics_are_found_by_cluster(table: RouteTable) -> None:
    table.register(MASTER, topics("T", "U"))
    table.register(OTHER, topics("U", "V"))

    assert table.topics_of_cluster("c") == ["T", "U"]
    assert table.topics_of_cluster("c2") == ["U", "V"]
    assert table.topics_of_cluster("nowhere") == []


def test_topics_are_found_by_unit_flags(table: RouteTable) -> None:
    table.register(MASTER, topics("plain"))
    for counter, flag in enumerate((1, 2, 3), start=2):
        table.register(MASTER, topics(f"T{flag}", counter=counter, topic_sys_flag=flag))

    assert table.unit_topics() == ["T1", "T3"]
    assert table.unit_sub_topics() == ["T2", "T3"]
    assert table.unit_sub_ununit_topics() == ["T2"]


def test_system_topics_are_the_names_with_somebody_to_ask(table: RouteTable) -> None:
    assert table.system_topics() == ([], None)
    table.register(MASTER, topics())
    table.register(OTHER, topics())

    assert table.system_topics() == (["c", "c2", "b", "b2"], MASTER.broker_addr)


def test_filter_servers_are_told_with_their_broker(table: RouteTable) -> None:
    table.register(MASTER, topics("T"), ["10.0.0.1:20000"])
    route = table.route("T")
    assert route is not None
    assert route.filter_server_table == {MASTER.broker_addr: ["10.0.0.1:20000"]}

    table.register(MASTER, topics("T"))
    route = table.route("T")
    assert route is not None
    assert route.filter_server_table == {}


def test_an_encoded_route_is_kept_until_something_changes(table: RouteTable) -> None:
    table.register(MASTER, topics("T"))

    body = table.encoded_route("T", is_standard=True)

    assert table.encoded_route("T", is_standard=True) is body
    assert table.encoded_route("T", is_standard=False) != body
    table.register(MASTER, topics("T"))  # a sign of life changes nothing
    assert table.encoded_route("T", is_standard=True) is body
    changes = (
        lambda: table.register(SLAVE, topics()),
        lambda: table.wipe_write_perm("b"),
        lambda: table.unregister(SLAVE),
        lambda: table.register(OTHER, topics("T")),
        lambda: table.delete_topic_of_broker("T", "b2"),
    )
    for change in changes:
        change()
        changed = table.encoded_route("T", is_standard=True)
        assert changed != body
        body = changed
    table.delete_topic("T")
    assert table.encoded_route("T", is_standard=True) is None


def test_the_table_is_bounded(table: RouteTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_module, "BROKERS_MAX", 1)
    monkeypatch.setattr(routes_module, "TOPICS_MAX", 2)
    table.register(MASTER, topics("T", "U"))

    with pytest.raises(RequestRefusedError, match="more than 1 brokers"):
        table.register(OTHER, topics())
    with pytest.raises(RequestRefusedError, match="more than 2 topics"):
        table.register(MASTER, topics("V", counter=2))
    assert table.topics() == ["T", "U"]
    table.register(MASTER, topics("T", "U", perm=4, counter=2))
    assert perms(table, "U") == {"b": 4}


def test_a_version_tells_whether_to_register_anew(table: RouteTable) -> None:
    version = DataVersion(counter=1, timestamp=1)
    assert table.is_changed(MASTER.broker_addr, version)

    table.register(MASTER, topics("T"))

    assert not table.is_changed(MASTER.broker_addr, version)
    assert table.is_changed(MASTER.broker_addr, version.next(5))
    assert table.data_version_of(MASTER.broker_addr) == version
