from __future__ import annotations

from dataclasses import replace

import pytest

from broker_core.errors import RequestRefusedError
from broker_core.message.data_version import DataVersion
from broker_core.message.topic_config import TopicConfig
from broker_core.namesrv import routes as routes_module
from broker_core.namesrv.claims import MASTER_SILENT_S, SET_MEMBERS_MAX
from broker_core.namesrv.identity import BrokerIdentity
from broker_core.namesrv.master_terms import EPOCH_KEPT_S, MASTER_TERMS_MAX, MasterTerms
from broker_core.namesrv.routes import RegisterResult, RouteTable
from broker_core.protocol.bodies.registration import TopicConfigSerializeWrapper
from broker_core.protocol.codes import ResponseCode
from broker_core.steps import run_to_end
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


def test_a_slave_is_in_the_route_but_adds_no_queues(table: RouteTable) -> None:
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


def test_a_slave_that_became_master_is_listed_under_one_id(table: RouteTable) -> None:
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


def test_unnamed_topics_stay(table: RouteTable) -> None:
    table.register(MASTER, topics("T"))

    table.register(MASTER, topics("U", counter=2))

    assert table.topics() == ["T", "U"]


def test_a_wiped_permission_stays_until_the_table_changes(table: RouteTable) -> None:
    table.register(MASTER, topics("T", "U", perm=7))
    table.register(OTHER, topics("T"))

    assert run_to_end(table.wipe_write_perm("b")) == 2
    assert perms(table, "T") == {"b": 5, "b2": 6}
    table.register(MASTER, topics("T", "U", perm=7))
    assert perms(table, "T") == {"b": 5, "b2": 6}
    assert run_to_end(table.add_write_perm("b")) == 2
    assert perms(table, "T") == {"b": 6, "b2": 6}
    table.register(MASTER, topics("T", "U", perm=7, counter=2))
    assert perms(table, "T") == {"b": 7, "b2": 6}


def test_a_broker_is_removed_with_its_last_address(table: RouteTable) -> None:
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


def test_another_brokers_address_cannot_be_unregistered(table: RouteTable) -> None:
    table.register(MASTER, topics("T"))

    table.unregister(BrokerIdentity("c", "stranger", 0, MASTER.broker_addr))

    assert perms(table, "T") == {"b": 6}


def test_a_broker_that_is_silent_for_two_minutes_is_removed(
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


def test_a_broker_is_removed_with_its_connection(table: RouteTable) -> None:
    first, second = object(), object()
    table.register(MASTER, topics("T"), owner=first)
    table.register(MASTER, topics("T"), owner=second)  # it reconnected before the loss was noticed

    table.owner_lost(first)
    assert table.topics() == ["T"]
    table.owner_lost(second)

    assert table.topics() == []


IMPOSTORS = {
    "its name from elsewhere": BrokerIdentity("c", "b", 0, "10.0.0.66:10911"),
    "its address under another name": BrokerIdentity("c", "x", 0, MASTER.broker_addr),
    "its address under another id": BrokerIdentity("c", "b", 7, MASTER.broker_addr),
    "its address in another cluster": BrokerIdentity("x", "b", 0, MASTER.broker_addr),
}


@pytest.mark.parametrize("impostor", IMPOSTORS.values(), ids=IMPOSTORS)
def test_no_impostor_changes_a_live_brokers_route(
    table: RouteTable, clock: ManualClock, impostor: BrokerIdentity
) -> None:
    honest, stranger = object(), object()
    table.register(MASTER, topics("T"), owner=honest)
    before = table.encoded_route("T", is_standard=True)

    # Registering the same as the honest broker gives no right to change it, either.
    table.register(MASTER, topics("T"), owner=stranger)
    with pytest.raises(RequestRefusedError) as refusal:
        table.register(impostor, topics("T", counter=9), owner=stranger)
    table.owner_lost(stranger)

    assert refusal.value.code == ResponseCode.NO_PERMISSION
    assert table.encoded_route("T", is_standard=True) == before
    assert list(table.cluster_info().broker_addr_table) == ["b"]


def test_a_live_brokers_name_belongs_to_its_cluster(table: RouteTable) -> None:
    table.register(MASTER, topics("T"), owner=object())
    stranger = BrokerIdentity("x", "b", 7, "10.0.0.66:10911")

    with pytest.raises(RequestRefusedError, match="set brokerClusterName=c") as refusal:
        table.register(stranger, topics(), owner=object())

    assert refusal.value.code == ResponseCode.NO_PERMISSION
    assert table.cluster_info().cluster_addr_table == {"c": ["b"]}
    assert table.cluster_info().broker_addr_table["b"].broker_addrs == {0: MASTER.broker_addr}


def test_slaves_that_lost_their_master_stay_in_their_cluster_until_a_master_moves_them(
    table: RouteTable,
) -> None:
    table.register(SLAVE, topics(), owner=object())
    stranger = BrokerIdentity("x", "b", 7, "10.0.0.66:10911")

    with pytest.raises(RequestRefusedError, match="belongs to cluster c"):
        table.register(stranger, topics(), owner=object())
    moved = replace(MASTER, cluster_name="c9")
    table.register(moved, topics("T"), owner=object())

    assert table.cluster_info().cluster_addr_table == {"c9": ["b"]}


def test_a_master_moves_to_another_cluster_over_its_own_connection(table: RouteTable) -> None:
    own = object()
    table.register(MASTER, topics("T"), owner=own)
    table.register(SLAVE, topics("T"), owner=object())

    table.register(replace(MASTER, cluster_name="c9"), topics("T"), owner=own)

    assert table.cluster_info().cluster_addr_table == {"c9": ["b"]}


def test_the_addresses_of_one_name_are_limited(table: RouteTable) -> None:
    owner = object()
    table.register(MASTER, topics("T"), owner=owner)
    for number in range(1, SET_MEMBERS_MAX):
        slave = BrokerIdentity("c", "b", number, f"10.0.1.{number}:10911")
        table.register(slave, topics(), owner=owner)
    beyond = BrokerIdentity("c", "b", SET_MEMBERS_MAX, "10.0.2.1:10911")

    with pytest.raises(RequestRefusedError, match="64 addresses already"):
        table.register(beyond, topics(), owner=object())
    table.register(SLAVE, topics(), owner=owner)
    table.register(beyond, topics(), owner=object(), is_proven=True)

    assert len(table.cluster_info().broker_addr_table["b"].broker_addrs) == SET_MEMBERS_MAX + 1


@pytest.mark.parametrize("how", ["it unregistered", "its connection closed", "it was silent"])
def test_a_name_is_free_after_its_broker_left(
    table: RouteTable, clock: ManualClock, how: str
) -> None:
    before, after = object(), object()
    moved = BrokerIdentity("c", "b", 0, "10.0.0.9:10911")
    table.register(MASTER, topics("T"), owner=before)
    with pytest.raises(RequestRefusedError, match=r"registered from 10\.0\.0\.1:10911"):
        table.register(moved, topics("T"), owner=after)

    if how == "it unregistered":
        table.unregister(MASTER, before)
    elif how == "its connection closed":
        table.owner_lost(before)
    else:
        clock.advance_ms(120_000)
    table.register(moved, topics("T"), owner=after)

    assert table.cluster_info().broker_addr_table["b"].broker_addrs == {0: "10.0.0.9:10911"}


def test_a_broker_changes_cluster_over_its_own_connection(table: RouteTable) -> None:
    own = object()
    table.register(MASTER, topics("T"), owner=own)

    table.register(BrokerIdentity("c", "b", 0, "10.0.0.9:10911"), topics("T"), owner=own)
    table.owner_lost(own)

    assert table.topics() == []


def test_our_own_process_and_a_proven_broker_take_their_places(table: RouteTable) -> None:
    stranger, proven = object(), object()
    for name in ("b", "b2"):
        impostor = BrokerIdentity("c", name, 0, f"10.0.0.66:{10_000 + len(name)}")
        table.register(impostor, topics("T"), owner=stranger)

    table.register(MASTER, topics("T"))
    table.register(OTHER, topics("T"), owner=proven, is_proven=True)
    table.owner_lost(stranger)

    brokers = table.cluster_info().broker_addr_table
    assert brokers["b"].broker_addrs == {0: MASTER.broker_addr}
    assert brokers["b2"].broker_addrs == {0: OTHER.broker_addr}


def test_a_stranger_ends_no_registration(table: RouteTable) -> None:
    honest, stranger = object(), object()
    table.register(MASTER, topics("T"), owner=honest)

    with pytest.raises(RequestRefusedError, match="another connection"):
        table.unregister(MASTER, stranger)
    table.register(MASTER, topics("T"), owner=stranger)
    table.unregister(MASTER, stranger)
    assert table.topics() == ["T"]
    table.unregister(MASTER, honest)

    assert table.topics() == []


def test_rejections_and_changes_of_a_route_are_counted(
    table: RouteTable, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    own = object()
    table.register(MASTER, topics("T"), owner=own)
    for number in range(50):
        with pytest.raises(RequestRefusedError):
            table.register(IMPOSTORS["its name from elsewhere"], topics("T"), owner=object())
        moved = BrokerIdentity("c", "b", 0, f"10.0.0.1:{20_000 + number}")
        table.register(moved, topics("T"), owner=own)
    clock.advance_ms(60_000)

    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    refused = "broker name claimed by another peer, refused broker_name=b count="
    changed = "route of a live broker changed broker_name=b count="
    assert len(warnings) == 4
    assert [line[: len(refused)] for line in warnings].count(refused) == 2
    assert [line[: len(changed)] for line in warnings].count(changed) == 2
    assert sum(" count=49 " in line for line in warnings) == 2
    table.shutdown()


def test_a_broker_that_moved_leaves_no_old_address(table: RouteTable, clock: ManualClock) -> None:
    table.register(MASTER, topics("T"))
    moved = BrokerIdentity("c", "b", 0, "10.0.0.9:10911")

    table.register(moved, topics("T"))

    route = table.route("T")
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {0: "10.0.0.9:10911"}
    assert table.data_version_of(MASTER.broker_addr) is None


def test_a_broker_that_changed_cluster_is_only_in_the_new_one(table: RouteTable) -> None:
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


def test_system_topics_are_the_names_with_a_responder(table: RouteTable) -> None:
    assert table.system_topics() == ([], None)
    table.register(MASTER, topics())
    table.register(OTHER, topics())

    assert table.system_topics() == (["c", "c2", "b", "b2"], MASTER.broker_addr)


def test_filter_servers_are_reported_with_their_broker(table: RouteTable) -> None:
    table.register(MASTER, topics("T"), ["10.0.0.1:20000"])
    route = table.route("T")
    assert route is not None
    assert route.filter_server_table == {MASTER.broker_addr: ["10.0.0.1:20000"]}

    table.register(MASTER, topics("T"))
    route = table.route("T")
    assert route is not None
    assert route.filter_server_table == {}


def test_an_encoded_route_is_cached_until_something_changes(table: RouteTable) -> None:
    table.register(MASTER, topics("T"))

    body = table.encoded_route("T", is_standard=True)

    assert table.encoded_route("T", is_standard=True) is body
    assert table.encoded_route("T", is_standard=False) != body
    table.register(MASTER, topics("T"))  # a heartbeat changes nothing
    assert table.encoded_route("T", is_standard=True) is body
    changes = (
        lambda: table.register(SLAVE, topics()),
        lambda: run_to_end(table.wipe_write_perm("b")),
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


def test_the_table_is_limited(table: RouteTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_module, "BROKERS_MAX", 1)
    monkeypatch.setattr(routes_module, "ROUTES_MAX", 2)
    own = object()
    table.register(MASTER, topics("T", "U"), owner=own)

    with pytest.raises(RequestRefusedError, match="the limit of 1 brokers is reached"):
        table.register(OTHER, topics(), owner=object())
    with pytest.raises(RequestRefusedError, match="the limit of 2 routes is reached"):
        table.register(MASTER, topics("V", counter=2), owner=own)
    assert table.topics() == ["T", "U"]
    table.register(MASTER, topics("T", "U", perm=4, counter=2), owner=own)
    assert perms(table, "U") == {"b": 4}
    table.delete_topic("T")
    table.register(MASTER, topics("U", "V", counter=3), owner=own)
    assert table.topics() == ["U", "V"]


def test_strangers_that_fill_the_table_do_not_keep_our_own_broker_out(
    table: RouteTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes_module, "BROKERS_MAX", 1)
    monkeypatch.setattr(routes_module, "ROUTES_MAX", 2)
    table.register(OTHER, topics("T", "U"), owner=object())

    table.register(MASTER, topics("V", "W"))

    assert table.topics() == ["T", "U", "V", "W"]


def test_a_topic_counts_once_for_each_of_its_brokers(
    table: RouteTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes_module, "ROUTES_MAX", 3)
    other = object()
    table.register(MASTER, topics("T", "U"))

    with pytest.raises(RequestRefusedError, match="the limit of 3 routes is reached"):
        table.register(OTHER, topics("T", "U"), owner=other)
    table.register(OTHER, topics("T"), owner=other)
    table.unregister(MASTER)
    table.register(OTHER, topics("T", "V", "W", counter=2), owner=other)
    assert sorted(table.topics()) == ["T", "V", "W"]


def test_names_and_filter_servers_are_limited(table: RouteTable) -> None:
    for identity, names, filter_servers in (
        (replace(MASTER, broker_name="b" * 256), (), ()),
        (replace(MASTER, cluster_name="c" * 256), (), ()),
        (MASTER, ("T" * 256,), ()),
        (MASTER, (), ("127.0.0.1:20000",) * 17),
    ):
        with pytest.raises(RequestRefusedError, match="255 characters"):
            table.register(identity, topics(*names), filter_servers)
    assert table.topics() == []


def test_a_change_of_permissions_leaves_the_other_topics_and_brokers_alone(
    table: RouteTable,
) -> None:
    """Topics with the same queues share a table."""
    table.register(MASTER, topics("T", "U"))
    table.register(OTHER, topics("U"))

    assert run_to_end(table.wipe_write_perm("b")) == 2
    assert perms(table, "T") == {"b": 4}
    assert perms(table, "U") == {"b": 4, OTHER.broker_name: 6}
    table.register(MASTER, topics("V", counter=2))
    assert perms(table, "V") == {"b": 6}
    assert perms(table, "T") == {"b": 4}


def test_a_version_decides_whether_to_register_again(table: RouteTable) -> None:
    version = DataVersion(counter=1, timestamp=1)
    assert table.is_changed(MASTER.broker_addr, version)

    table.register(MASTER, topics("T"))

    assert not table.is_changed(MASTER.broker_addr, version)
    assert table.is_changed(MASTER.broker_addr, version.next(5))
    assert table.data_version_of(MASTER.broker_addr) == version


def promoted(identity: BrokerIdentity, epoch: int) -> BrokerIdentity:
    return replace(identity, broker_id=0, epoch=epoch)


def master_of(table: RouteTable) -> str | None:
    return table.cluster_info().broker_addr_table["b"].broker_addrs.get(0)


def test_a_master_of_an_earlier_epoch_is_rejected(table: RouteTable) -> None:
    old, new = object(), object()
    table.register(MASTER, topics("T"), owner=old)
    table.register(SLAVE, topics("T"), owner=new)
    table.owner_lost(old)
    table.register(promoted(SLAVE, 1), topics("T"), owner=new)

    with pytest.raises(RequestRefusedError, match=r"in epoch 1, but .* is in epoch 0") as raised:
        table.register(MASTER, topics("T"), owner=object())

    assert raised.value.ext_fields == {"epoch": "1"}
    assert master_of(table) == SLAVE.broker_addr


def test_the_earlier_master_is_rejected_after_the_later_one_is_gone(table: RouteTable) -> None:
    owner = object()
    table.register(promoted(SLAVE, 3), topics("T"), owner=owner)
    table.owner_lost(owner)

    with pytest.raises(RequestRefusedError, match="was replaced"):
        table.register(promoted(MASTER, 2), topics("T"), is_proven=True)

    table.register(promoted(MASTER, 4), topics("T"))
    assert master_of(table) == MASTER.broker_addr


def test_a_replaced_master_may_register_as_a_slave(table: RouteTable) -> None:
    table.register(promoted(SLAVE, 1), topics("T"), owner=object())

    found = table.register(replace(MASTER, broker_id=1), topics("T"), owner=object())

    assert found == RegisterResult(SLAVE.ha_server_addr, SLAVE.broker_addr)


def test_a_name_starts_over_a_day_after_its_last_master(
    table: RouteTable, clock: ManualClock
) -> None:
    owner = object()
    table.register(promoted(MASTER, 5), topics("T"), owner=owner)
    table.owner_lost(owner)
    clock.advance_ms(round(EPOCH_KEPT_S * 1000) + 1)

    table.register(MASTER, topics("T"))

    assert master_of(table) == MASTER.broker_addr


def test_a_promoted_slave_takes_over_a_silent_masters_name(
    table: RouteTable, clock: ManualClock
) -> None:
    slave = object()
    table.register(MASTER, topics("T"), owner=object())
    table.register(SLAVE, topics("T"), owner=slave)
    with pytest.raises(RequestRefusedError, match="is registered from"):
        table.register(promoted(SLAVE, 1), topics("T"), owner=slave)
    clock.advance_ms(round(MASTER_SILENT_S * 1000) + 1)
    with pytest.raises(RequestRefusedError, match="is registered from"):
        table.register(promoted(SLAVE, 1), topics("T"), owner=object())

    table.register(promoted(SLAVE, 1), topics("T"), owner=slave)

    assert master_of(table) == SLAVE.broker_addr


def test_the_number_of_stored_reigns_is_limited(clock: ManualClock) -> None:
    master_terms = MasterTerms(clock)
    for number in range(MASTER_TERMS_MAX + 2):
        master_terms.note(f"b{number}", 2, "10.0.0.1:10911")

    master_terms.require("b0", 1, "10.0.0.1:10911")
    with pytest.raises(RequestRefusedError):
        master_terms.require(f"b{MASTER_TERMS_MAX + 1}", 1, "10.0.0.1:10911")
