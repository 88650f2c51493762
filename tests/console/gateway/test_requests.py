"""Admin requests: the bytes on the wire, and the plain values of the answers.

The bodies are in RocketMQ 4.9.8's format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from broker_core.message import properties
from broker_core.protocol.codes import RequestCode
from broker_core.trace.filter import TraceWatch
from console.gateway.answers import (
    BrokerNode,
    GroupConfig,
    MessageQueue,
    OutgoingMessage,
    TopicConfig,
    TopicQueue,
    WatchFilter,
)
from console.gateway.errors import (
    GatewayError,
    NotFoundError,
    RequestFailedError,
    UnreadableAnswerError,
)
from console.gateway.requests import cluster, groups, messages, offsets, running, topics, watch

if TYPE_CHECKING:
    from broker_core.protocol.command import RemotingCommand

ADDRESS = "127.0.0.1:10911"
NODE = BrokerNode("DefaultCluster", "broker-a", 0, ADDRESS)


class Peer:
    """Answers every request with the same answer, and records the requests."""

    def __init__(
        self, body: bytes = b"", *, code: int = 0, remark: str | None = None, **ext: str
    ) -> None:
        self.requests: list[RemotingCommand] = []
        self._answer = (code, remark, ext, body)

    async def __call__(
        self, address: str, command: RemotingCommand, timeout_s: float | None = None
    ) -> RemotingCommand:
        self.requests.append(command)
        code, remark, ext, body = self._answer
        return command.answer(code, remark, ext, body)


async def test_a_client_that_cannot_report_on_itself_is_not_a_rejecting_broker() -> None:
    peer = Peer(code=3, remark="request type 307 not supported")

    with pytest.raises(GatewayError, match="This client doesn't report its status") as caught:
        await running.running_info(peer, ADDRESS, "g", "c", with_threads=False)

    assert not isinstance(caught.value, RequestFailedError)


async def test_cluster_info_reads_fastjsons_numeric_keys() -> None:
    peer = Peer(
        b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"127.0.0.1:10911",1:"127.0.0.1:10921"},'
        b'"brokerName":"b","cluster":"c"}},"clusterAddrTable":{"c":["b"]}}'
    )

    nodes = await cluster.cluster_info(peer, "127.0.0.1:9876")

    assert nodes == (
        BrokerNode("c", "b", 0, "127.0.0.1:10911"),
        BrokerNode("c", "b", 1, "127.0.0.1:10921"),
    )
    assert peer.requests[0].code == RequestCode.GET_BROKER_CLUSTER_INFO


async def test_runtime_info_takes_the_first_of_three_averages() -> None:
    peer = Peer(
        b'{"table":{"putTps":"1.5 1.2 0.9","getTransferedTps":"3.0 2.0 1.0",'
        b'"bootTimestamp":"1795251742101","brokerVersionDesc":"V4_9_7",'
        b'"msgPutTotalTodayNow":"9007199254740995","msgPutTotalTodayMorning":"5",'
        b'"remainHowManyDataToFlush":"12 B","commitLogMaxOffset":"9007199254740993"}}'
    )

    info = await cluster.runtime_info(peer, NODE, 1_795_251_752_101)

    assert (info.put_tps, info.get_tps) == (1.5, 3.0)
    assert info.put_today == 9_007_199_254_740_990
    assert info.commit_log_max_offset == 9_007_199_254_740_993  # more than a float holds
    assert info.flush_behind_bytes == 12
    assert info.uptime_s == 10.0


async def test_missing_figures_are_unknown_and_not_zero() -> None:
    info = await cluster.runtime_info(Peer(b'{"table":{"putTps":"odd"}}'), NODE, 0)

    assert info.put_tps is None
    assert info.put_today is None
    assert info.uptime_s is None
    assert info.commit_log_bytes is None
    assert info.earliest_message_ms is None


async def test_topic_configs_are_read() -> None:
    peer = Peer(
        b'{"dataVersion":{"counter":0,"timestamp":1},"topicConfigTable":{"T":{"order":true,'
        b'"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"T",'
        b'"topicSysFlag":0,"writeQueueNums":4}}}'
    )

    assert await topics.topic_configs(peer, ADDRESS) == {"T": TopicConfig("T", 8, 4, 6, True)}


async def test_topic_stats_read_object_keys() -> None:
    peer = Peer(
        b'{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"T"}:'
        b'{"lastUpdateTimestamp":0,"maxOffset":5,"minOffset":2}}}'
    )

    [row] = await topics.topic_stats(peer, ADDRESS, "T")

    assert (row.queue_id, row.min_offset, row.max_offset, row.last_update_ms) == (1, 2, 5, None)
    assert row.message_count == 3


async def test_an_updated_topic_is_sent_as_text() -> None:
    peer = Peer()

    await topics.update_topic(peer, ADDRESS, TopicConfig("T", 8, 4, 6, True))

    assert peer.requests[0].ext_fields == {
        "topic": "T",
        "defaultTopic": "TBW102",
        "readQueueNums": "8",
        "writeQueueNums": "4",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "true",
    }


async def test_group_configs_are_copied_both_ways() -> None:
    config = GroupConfig("g", consume_enable=False, retry_max_times=3)
    peer = Peer()
    await groups.update_group(peer, ADDRESS, config)

    back = Peer(b'{"dataVersion":{},"subscriptionGroupTable":{"g":' + peer.requests[0].body + b"}}")

    assert await groups.group_configs(back, ADDRESS) == {"g": config}


async def test_a_group_without_members_is_offline_and_not_an_error() -> None:
    peer = Peer(code=206, remark="the consumer group[g] not online")

    assert await groups.group_connections(peer, ADDRESS, "g") is None


async def test_members_and_subscriptions_are_read() -> None:
    peer = Peer(
        b'{"connectionSet":[{"clientAddr":"1.1.1.1:1","clientId":"cid","language":"JAVA",'
        b'"version":409}],"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
        b'"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","subscriptionTable":{"T":'
        b'{"classFilterMode":false,"codeSet":[65],"expressionType":"TAG","subString":"A",'
        b'"subVersion":1,"tagsSet":["A"],"topic":"T"}}}'
    )

    connections = await groups.group_connections(peer, ADDRESS, "g")

    assert connections is not None
    assert [member.client_id for member in connections.members] == ["cid"]
    assert [(each.topic, each.sub_string) for each in connections.subscriptions] == [("T", "A")]


async def test_consume_stats_are_read() -> None:
    peer = Peer(
        b'{"consumeTps":1.5,"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:'
        b'{"brokerOffset":9,"consumerOffset":7,"lastTimestamp":5}}}'
    )

    stats = await groups.consume_stats(peer, ADDRESS, "g")

    assert stats.consume_tps == 1.5
    assert stats.queues[TopicQueue("T", 0)] == groups.Consumed(9, 7, 5)


async def test_counts_of_messages_in_flight_can_be_read() -> None:
    peer = Peer(
        b'{"consumeTps":0,"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:'
        b'{"brokerOffset":9,"consumerOffset":9,"lastTimestamp":5,"inFlight":2,"oldestLease":7}}}'
    )

    stats = await groups.consume_stats(peer, ADDRESS, "g")

    assert stats.queues[TopicQueue("T", 0)] == groups.Consumed(9, 9, 5, 2, 7)


async def test_consumer_offsets_are_grouped() -> None:
    peer = Peer(b'{"offsetTable":{"T@g":{0:7,1:8},"%RETRY%g@g":{0:1}}}')

    assert await offsets.consumer_offsets(peer, ADDRESS) == {
        "g": {TopicQueue("T", 0): 7, TopicQueue("T", 1): 8, TopicQueue("%RETRY%g", 0): 1}
    }


async def test_an_empty_offset_table_is_4_9s_error_without_a_message() -> None:
    assert await offsets.consumer_offsets(Peer(code=1), ADDRESS) == {}
    with pytest.raises(RequestFailedError):
        await offsets.consumer_offsets(Peer(code=1, remark="disk"), ADDRESS)


async def test_traffic_of_a_span_longer_than_summed_up_is_unknown() -> None:
    peer = Peer(
        b'{"statsDay":{"avgpt":0.0,"sum":0,"tps":0.0},"statsHour":{"avgpt":1.0,"sum":60,"tps":0.1},'
        b'"statsMinute":{"avgpt":1.0,"sum":60,"tps":1.0}}'
    )

    traffic = await cluster.traffic(peer, ADDRESS, "TOPIC_PUT_NUMS", "T")

    assert traffic is not None
    assert (traffic.minute_tps, traffic.hour_sum, traffic.day_sum) == (1.0, 60, None)


async def test_a_topic_without_traffic_has_no_statistics() -> None:
    peer = Peer(code=1, remark="The stats <TOPIC_PUT_NUMS> <T> not exist")

    assert await cluster.traffic(peer, ADDRESS, "TOPIC_PUT_NUMS", "T") is None


async def test_a_reset_by_time_uses_the_offsets_sent_to_members() -> None:
    peer = Peer(b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:3}}')

    assert await offsets.invoke_reset_offset(peer, ADDRESS, "g", "T", -1) == {0: 3}
    assert peer.requests[0].ext_fields["timestamp"] == "-1"
    assert peer.requests[0].ext_fields["isForce"] == "true"


async def test_a_rejection_has_the_brokers_words() -> None:
    with pytest.raises(NotFoundError, match=r"topic\[T\] not exist \(code 17\)"):
        await topics.topic_stats(Peer(code=17, remark="topic[T] not exist"), ADDRESS, "T")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"not json", b'{"offsetTable":{"x":1}}'])
async def test_an_unexpected_answer_is_reported_as_unreadable(body) -> None:
    with pytest.raises(UnreadableAnswerError, match="GET_TOPIC_STATS_INFO can't be read"):
        await topics.topic_stats(Peer(body), ADDRESS, "T")


async def test_a_route_has_only_the_queues_of_masters() -> None:
    peer = Peer(
        b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":{"0":"h:1","1":"h:2"}},'
        b'{"brokerName":"slave-only","brokerAddrs":{"1":"h:3"}}],'
        b'"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":3,"writeQueueNums":2},'
        b'{"brokerName":"slave-only","perm":6,"readQueueNums":1,"writeQueueNums":1}]}'
    )

    found = await messages.route(peer, ADDRESS, "orders")

    assert found is not None
    route, addresses = found
    assert [queue.queue_id for queue in route.write_queues] == [0, 1]
    assert route.read_queues == tuple(MessageQueue("orders", "a", number) for number in range(3))
    assert addresses == {"a": "h:1"}


async def test_a_topic_without_a_route_does_not_exist() -> None:
    peer = Peer(code=17, remark="No topic route info in name server for the topic: orders")

    assert await messages.route(peer, ADDRESS, "orders") is None


async def test_a_sent_message_has_its_tag_keys_and_id() -> None:
    peer = Peer(queueOffset="7")
    message = OutgoingMessage("T", b"hello", tags="A", keys="k1 k2", born_ms=5)

    queue_offset = await messages.send(peer, ADDRESS, MessageQueue("T", "b", 3), message, "pg", "U")

    fields = peer.requests[0].ext_fields
    assert queue_offset == 7
    assert (fields["a"], fields["b"], fields["e"], fields["g"]) == ("pg", "T", "3", "5")
    assert properties.decode(fields["i"]) == {
        "UNIQ_KEY": "U",
        "KEYS": "k1 k2",
        "WAIT": "true",
        "TAGS": "A",
    }


@pytest.mark.parametrize("body", [b"{nonsense", b"[]", b'{"dropped":"x","events":[]}', b"{}"])
def test_pushed_bytes_without_a_batch_are_rejected(body) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # the watch ignores it, whatever the reason
        watch.trace_batch(body)


async def test_a_broker_only_limits_the_rate_of_its_only_filter() -> None:
    peer = Peer(resumed="false")
    capped = WatchFilter(topic="Orders", rate_max=50)

    await watch.trace_watch(peer, ADDRESS, {"1": capped})
    await watch.trace_watch(peer, ADDRESS, {"1": capped, "2": WatchFilter()})
    await watch.trace_watch(peer, ADDRESS, {"2": WatchFilter()})

    requests = [msgspec.json.decode(each.body, type=TraceWatch) for each in peer.requests]
    assert [each.events_per_second_max for each in requests] == [50, None, None]
