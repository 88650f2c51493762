"""Queries to a master with arbitrary answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker_core.errors import RemotingTimeoutError
from broker_core.message.data_version import DataVersion
from broker_core.metadata.request_modes import RequestMode
from broker_core.protocol.codes import RequestCode
from tests.support.clock import ManualClock
from tests.support.following_slave import GOOD, MASTER, OWN, TOPICS, VIP, Slave
from tests.support.time_steps import pass_time, settle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def slave(clock: ManualClock) -> AsyncIterator[Slave]:
    one = Slave(clock)
    one.sync.follow(MASTER)
    yield one
    await one.sync.shutdown()


async def test_everything_is_taken_over(slave: Slave) -> None:
    await slave.sync.sync()

    assert slave.sync.state.failures == {}
    assert slave.topics.data_version == DataVersion(counter=2, timestamp=5)
    assert list(slave.topics.table) == ["T"]
    assert slave.offsets.query("g", "T", 0) == 7
    assert slave.delay_offsets.table == {3: 4}
    assert list(slave.groups.table) == ["g"]


async def test_the_original_is_asked_in_order_and_only_once_for_missing_data(
    slave: Slave,
) -> None:
    *tables, end = GOOD
    codes = [
        *tables,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
        RequestCode.GET_ALL_CONSUMER_FILTER,
        end,
    ]
    await slave.sync.sync()
    assert slave.master.requests[0] == (VIP, RequestCode.GET_ALL_TOPIC_CONFIG)
    assert {address for address, _ in slave.master.requests[1:]} == {MASTER}
    assert slave.requests == codes

    await slave.sync.sync()
    assert slave.requests == list(GOOD)


async def test_a_master_without_the_topics_port_is_queried_at_its_own(slave: Slave) -> None:
    slave.master.has_vip_port = False

    await slave.sync.sync()

    assert list(slave.topics.table) == ["T"]


async def test_it_checks_after_three_seconds_and_then_every_ten(
    slave: Slave, clock: ManualClock
) -> None:
    slave.sync.start()
    await settle()
    await pass_time(clock, 2_900)
    assert slave.requests == []
    await pass_time(clock, 200)
    assert len(slave.requests) == 7
    await pass_time(clock, 9_700)
    assert slave.requests == []
    await pass_time(clock, 400)
    assert len(slave.requests) == 5


async def test_a_master_queries_no_other_broker(slave: Slave) -> None:
    await slave.role.changed("ASYNC_MASTER")

    await slave.sync.sync()

    assert slave.requests == []


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b'{"offsetTable":{"T@g":{"x":1}}}', b'{"offsetTable":{"T@g":{0:"y"}}}'],
)
async def test_unreadable_data_changes_nothing_and_stops_nothing_else(
    slave: Slave, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    slave.offsets.commit("g", "T", 0, 3)
    slave.master.bodies[RequestCode.GET_ALL_CONSUMER_OFFSET] = body

    await slave.sync.sync()
    await slave.sync.sync()

    assert slave.offsets.query("g", "T", 0) == 3
    assert list(slave.groups.table) == ["g"]
    assert set(slave.sync.state.failures) == {"consumer offsets"}
    assert slave.sync.state.last_at is None
    assert caplog.text.count("metadata not copied, will retry kind=consumer offsets") == 1

    slave.master.bodies[RequestCode.GET_ALL_CONSUMER_OFFSET] = GOOD[
        RequestCode.GET_ALL_CONSUMER_OFFSET
    ]
    await slave.sync.sync()
    assert slave.sync.state.failures == {}
    assert slave.sync.state.last_at is not None


async def test_a_topics_queues_are_deleted_only_if_the_same_master_had_it(slave: Slave) -> None:
    await slave.sync.sync()
    empty = b'{"dataVersion":{"counter":9,"timestamp":9},"topicConfigTable":{}}'
    slave.master.bodies[RequestCode.GET_ALL_TOPIC_CONFIG] = empty
    slave.sync.follow("10.0.0.3:10911")
    await slave.sync.sync()
    assert (list(slave.topics.table), slave.deleted) == ([], {})

    slave.master.bodies[RequestCode.GET_ALL_TOPIC_CONFIG] = TOPICS
    await slave.sync.sync()
    slave.master.bodies[RequestCode.GET_ALL_TOPIC_CONFIG] = empty
    await slave.sync.sync()
    assert slave.deleted == {"T": 40}


async def test_our_master_reports_where_deleted_topics_ended(slave: Slave) -> None:
    await slave.sync.sync()
    slave.master.bodies[RequestCode.GET_ALL_TOPIC_CONFIG] = TOPICS.replace(b'"T"', b'"U"')
    slave.master.deleted_topics = '{"T":30,"made-again":20,"RMQ_SYS_TRANS_HALF_TOPIC":9}'

    await slave.sync.sync()

    assert slave.sync.state.failures == {}
    assert slave.deleted == {"T": 30, "made-again": 20}


@pytest.mark.parametrize("report", ["", "[]", '{"T":"x"}'])
async def test_unreadable_deletions_delete_nothing(slave: Slave, report: str) -> None:
    slave.master.deleted_topics = report

    await slave.sync.sync()

    assert set(slave.sync.state.failures) == {"topics"}
    assert slave.deleted == {}


@pytest.mark.parametrize("address", ["", OWN])
async def test_without_a_master_the_last_one_is_followed_on(slave: Slave, address: str) -> None:
    slave.sync.follow(address)

    assert slave.sync.state.master_addr == MASTER


async def test_the_end_of_the_masters_log_is_known_until_another_master_is_followed(
    slave: Slave, clock: ManualClock
) -> None:
    await slave.sync.sync()
    behind = slave.sync.state.ends.behind(clock.monotonic(), 4_000)
    slave.sync.follow("10.0.0.3:10911")

    assert behind is not None
    assert behind.lag_bytes == 96
    assert slave.sync.state.ends.behind(clock.monotonic(), 4_000) is None


@pytest.mark.parametrize("end", ["", "-1", "x", "9" * 30 + "x", "٣"])
async def test_a_non_numeric_end_is_reported_and_stops_nothing_else(
    slave: Slave, clock: ManualClock, end: str
) -> None:
    body = f'{{"table":{{"commitLogMaxOffset":"{end}"}}}}'.encode()
    slave.master.bodies[RequestCode.GET_BROKER_RUNTIME_INFO] = body

    await slave.sync.sync()

    assert set(slave.sync.state.failures) == {"the ends of the log"}
    assert slave.sync.state.ends.behind(clock.monotonic(), 0) is None
    assert list(slave.groups.table) == ["g"]


async def test_deleted_topics_are_also_requested_at_the_masters_own_port(slave: Slave) -> None:
    slave.master.has_vip_port = False
    slave.master.deleted_topics = '{"made-again":20}'

    await slave.sync.sync()

    assert slave.deleted == {"made-again": 20}


async def test_a_new_master_starts_without_the_formers_data(
    slave: Slave,
) -> None:
    slave.master.bodies[RequestCode.GET_ALL_DELAY_OFFSET] = b"{"
    await slave.sync.sync()
    assert slave.sync.state.failures
    slave.requests.clear()

    slave.sync.follow("10.0.0.3:10911")

    assert slave.sync.state.failures == {}
    slave.master.bodies = dict(GOOD)
    await slave.sync.sync()
    assert slave.sync.state.last_at is not None
    assert RequestCode.GET_ALL_CONSUMER_FILTER in slave.requests
    slave.sync.follow(MASTER)
    assert slave.sync.state.last_at is None


@pytest.mark.parametrize("code", GOOD)
async def test_a_slave_promoted_during_a_query_takes_nothing_over(
    slave: Slave, code: RequestCode
) -> None:
    slave.master.bodies = {code: GOOD[code]}
    slave.offsets.commit("g", "T", 0, 3)

    async def promote() -> None:
        if slave.role.is_slave and slave.master.requests[-1][1] == code:
            await slave.role.changed("ASYNC_MASTER")

    slave.master.on_asked = promote

    await slave.sync.sync()

    assert not slave.role.is_slave
    assert slave.topics.data_version != DataVersion(counter=2, timestamp=5)
    assert slave.offsets.query("g", "T", 0) == 3
    assert slave.delay_offsets.table == {}
    assert "g" not in slave.groups.table


FILTERS = (
    b'{"filterDataByTopic":{"T":{"topic":"T","groupFilterData":{"g":{"consumerGroup":"g",'
    b'"topic":"T","expression":"a > 1","expressionType":"SQL92","clientVersion":5,'
    b'"bornTime":1}}}}}'
)
NO_FILTERS = b'{"filterDataByTopic":{}}'


async def test_filters_are_copied_and_removed_only_from_the_same_master(slave: Slave) -> None:
    slave.master.bodies[RequestCode.GET_ALL_CONSUMER_FILTER] = FILTERS
    await slave.sync.sync()
    found = slave.filters.find("T", "g")
    assert found is not None
    assert found.text == "a > 1"

    slave.sync.follow("10.0.0.3:10911")
    slave.master.bodies[RequestCode.GET_ALL_CONSUMER_FILTER] = NO_FILTERS
    await slave.sync.sync()
    assert slave.filters.find("T", "g") is not None, "of another master"

    slave.master.bodies[RequestCode.GET_ALL_CONSUMER_FILTER] = FILTERS
    await slave.sync.sync()
    slave.master.bodies[RequestCode.GET_ALL_CONSUMER_FILTER] = NO_FILTERS
    await slave.sync.sync()
    assert slave.filters.find("T", "g") is None
    assert slave.sync.state.failures == {}


@pytest.mark.parametrize(
    ("own", "theirs", "failure"),
    [
        (2, '{"counter":2,"timestamp":5}', None),
        (2, '{"counter":0,"timestamp":0}', None),
        (2, None, None),
        (0, '{"counter":3,"timestamp":5}', None),
        (None, '{"counter":3,"timestamp":5}', None),
        (
            2,
            '{"counter":3,"timestamp":5}',
            f"the master at {MASTER} refused: its accounts have version 3, this broker's 2; copy "
            "the master's plain_acl.yml here",
        ),
    ],
)
async def test_accounts_of_another_version_are_reported(
    slave: Slave, own: int | None, theirs: str | None, failure: str | None
) -> None:
    slave.accounts = None if own is None else DataVersion(counter=own, timestamp=5)
    slave.master.accounts = theirs
    slave.master.bodies[RequestCode.GET_BROKER_CLUSTER_ACL_INFO] = b""

    await slave.sync.sync()

    assert slave.sync.state.failures.get("the version of the accounts") == failure
    assert (RequestCode.GET_BROKER_CLUSTER_ACL_INFO in slave.requests) is bool(own)


async def test_a_rejecting_master_is_reported_with_its_code(slave: Slave) -> None:
    del slave.master.bodies[RequestCode.GET_ALL_DELAY_OFFSET]

    await slave.sync.sync()

    assert slave.sync.state.failures == {
        "delay offsets": f"the master at {MASTER} refused: code 3 not supported"
    }


async def test_a_master_that_times_out_after_three_seconds_is_reported_and_retried(
    slave: Slave, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    slave.master.error = RemotingTimeoutError("no answer")
    await slave.sync.sync()
    assert slave.master.timeouts == {3.0}
    assert set(slave.sync.state.failures.values()) == {"no answer"}
    assert set(slave.sync.state.failures) == {
        "topics",
        "consumer offsets",
        "delay offsets",
        "subscription groups",
        "request modes",
        "consumer filters",
        "the ends of the log",
    }
    assert slave.sync.state.last_at is None

    slave.master.error = None
    await slave.sync.sync()
    await slave.sync.sync()
    assert slave.sync.state.failures == {}
    assert slave.sync.state.last_at == clock.monotonic()
    assert caplog.text.count("metadata copied again kind=topics") == 1


async def test_a_slave_sends_no_requests_before_it_knows_its_master(clock: ManualClock) -> None:
    slave = Slave(clock)

    await slave.sync.sync()

    assert slave.requests == []
    assert slave.sync.state.master_addr == ""
    assert slave.sync.state.last_at is None
    await slave.sync.shutdown()


async def test_after_a_shutdown_nothing_is_checked(slave: Slave, clock: ManualClock) -> None:
    slave.sync.start()
    await settle()

    await slave.sync.shutdown()
    await pass_time(clock, 20_000)

    assert slave.requests == []
    assert slave.master.is_shut_down


async def test_topics_are_requested_two_ports_below_at_any_address(slave: Slave) -> None:
    slave.sync.follow("[2001:db8::1]:10911")

    await slave.sync.sync()

    assert slave.master.requests[0][0] == "[2001:db8::1]:10909"


@pytest.mark.parametrize(
    "code",
    [*GOOD, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, RequestCode.GET_ALL_CONSUMER_FILTER],
)
async def test_an_omitted_table_is_an_empty_one(slave: Slave, code: RequestCode) -> None:
    slave.master.bodies[code] = b"{}"

    await slave.sync.sync()

    is_needed = code == RequestCode.GET_BROKER_RUNTIME_INFO
    assert set(slave.sync.state.failures) == ({"the ends of the log"} if is_needed else set())


async def test_system_topics_are_never_deleted_or_reported_as_deleted(
    slave: Slave, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    both = TOPICS.replace(
        b'"topicConfigTable":{',
        b'"topicConfigTable":{"SELF_TEST_TOPIC":{"topicName":"SELF_TEST_TOPIC","perm":6,'
        b'"readQueueNums":1,"writeQueueNums":1},',
    )
    slave.master.bodies[RequestCode.GET_ALL_TOPIC_CONFIG] = both
    await slave.sync.sync()
    slave.master.bodies[RequestCode.GET_ALL_TOPIC_CONFIG] = (
        b'{"dataVersion":{"counter":9,"timestamp":9},"topicConfigTable":{}}'
    )
    await slave.sync.sync()

    assert slave.deleted == {"T": 40}
    reports = [line for line in caplog.messages if line.startswith("topic deleted by the master")]
    assert reports == ["topic deleted by the master topic=T"]


async def test_request_modes_match_the_masters(slave: Slave) -> None:
    code = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE
    slave.master.bodies[code] = (
        b'{"messageRequestModeMap":{"T":{"g":{"consumerGroup":"g","mode":"POP",'
        b'"popShareQueueNum":2,"topic":"T"}}}}'
    )
    await slave.sync.sync()
    mode = slave.modes.find("T", "g")
    assert mode is not None
    assert (mode.mode, mode.pop_share_queue_num) == ("POP", 2)
    assert slave.modes.writer.unwritten

    slave.master.bodies[code] = b'{"messageRequestModeMap":{}}'
    await slave.sync.sync()
    assert slave.modes.find("T", "g") is None
    assert slave.sync.state.failures == {}


async def test_a_promoted_slave_keeps_its_request_modes(slave: Slave) -> None:
    slave.modes.put(RequestMode(consumer_group="g", mode="POP", topic="T"))
    slave.master.bodies[RequestCode.GET_ALL_MESSAGE_REQUEST_MODE] = b"{}"

    async def promote() -> None:
        if slave.master.requests[-1][1] == RequestCode.GET_ALL_MESSAGE_REQUEST_MODE:
            await slave.role.changed("ASYNC_MASTER")

    slave.master.on_asked = promote

    await slave.sync.sync()

    assert slave.modes.find("T", "g") is not None


async def test_filters_of_a_slave_promoted_meanwhile_stay(slave: Slave) -> None:
    slave.master.bodies[RequestCode.GET_ALL_CONSUMER_FILTER] = FILTERS

    async def promote() -> None:
        if slave.master.requests[-1][1] == RequestCode.GET_ALL_CONSUMER_FILTER:
            await slave.role.changed("ASYNC_MASTER")

    slave.master.on_asked = promote

    await slave.sync.sync()

    assert slave.filters.find("T", "g") is None


async def test_the_end_reported_by_a_former_master_does_not_count(
    slave: Slave, clock: ManualClock
) -> None:
    async def follow_another() -> None:
        if slave.master.requests[-1][1] == RequestCode.GET_BROKER_RUNTIME_INFO:
            slave.sync.follow("10.0.0.3:10911")

    slave.master.on_asked = follow_another

    await slave.sync.sync()

    assert slave.sync.state.ends.behind(clock.monotonic(), 0) is None


async def test_the_accounts_of_a_rejecting_master_are_reported(slave: Slave) -> None:
    slave.accounts = DataVersion(counter=2, timestamp=5)

    await slave.sync.sync()

    assert slave.sync.state.failures == {
        "the version of the accounts": f"the master at {MASTER} refused: code 3 not supported"
    }


async def test_a_table_that_fails_for_an_unknown_reason_does_not_affect_the_others(
    slave: Slave, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise TypeError("of a bug")

    monkeypatch.setattr(slave.topics, "follow", fail)

    await slave.sync.sync()

    assert list(slave.sync.state.failures) == ["topics"]
    assert slave.offsets.query("g", "T", 0) == 7
    assert slave.groups.find("g") is not None


async def test_impossible_offsets_from_a_master_are_limited(slave: Slave) -> None:
    slave.master.bodies[RequestCode.GET_ALL_CONSUMER_OFFSET] = (
        b'{"offsetTable":{"T@g":{0:9223372036854775807},"U@g":{0:-5}}}'
    )

    await slave.sync.sync()

    assert slave.offsets.query("g", "T", 0) == (1 << 63) - 1
    assert slave.sync.state.failures == {}
