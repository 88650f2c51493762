from __future__ import annotations

import zlib

import pytest

from broker_core.message.data_version import DataVersion
from broker_core.message.topic_config import TopicConfig
from broker_core.protocol.bodies import registration
from broker_core.protocol.bodies.cluster import ClusterInfo
from broker_core.protocol.bodies.registration import (
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
)
from broker_core.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from broker_core.protocol.bodies.tables import KVTable, TopicList

BROKER = BrokerData(
    broker_addrs={0: "127.0.0.1:10911", 1: "127.0.0.1:10921"}, broker_name="b", cluster="c"
)
ROUTE = TopicRouteData(
    broker_datas=[BROKER],
    queue_datas=[QueueData(broker_name="b", perm=6, read_queue_nums=8, write_queue_nums=8)],
)
# The bodies below were printed by rocketmq-common:4.9.8.
QUEUE_DATAS = (
    b'"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":8,"topicSysFlag":0,'
    b'"writeQueueNums":8}]'
)
STANDARD_ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911","1":"127.0.0.1:10921"},'
    b'"brokerName":"b","cluster":"c"}],"filterServerTable":{},' + QUEUE_DATAS + b"}"
)
FASTJSON_ROUTE = STANDARD_ROUTE.replace(b'"0":', b"0:").replace(b'"1":', b"1:")
COMPRESSED = bytes.fromhex(
    "78da63606050af564ace2fcd2b492d52b232d0512ac9cc4d2d2e49cc2d50b23234b734353235343731323430ac65"
    "6060600462a110050b20345308f6f473f7718d0f7174078a3245c70200c90e112d"
)


def test_a_route_in_either_dialect_has_the_originals_bytes() -> None:
    assert ROUTE.encode(is_standard=True) == STANDARD_ROUTE
    assert ROUTE.encode(is_standard=False) == FASTJSON_ROUTE


@pytest.mark.parametrize("body", [STANDARD_ROUTE, FASTJSON_ROUTE])
def test_a_route_in_either_dialect_can_be_read(body: bytes) -> None:
    assert TopicRouteData.decode(body) == ROUTE


def test_the_order_of_queues_is_reported_only_if_there_is_one() -> None:
    route = TopicRouteData(broker_datas=[], queue_datas=[], order_topic_conf="b:8")

    assert b'"orderTopicConf":"b:8"' in route.encode(is_standard=True)
    assert b'"orderTopicConf":"b:8"' in route.encode(is_standard=False)


def test_a_cluster_always_has_raw_keys() -> None:
    cluster = ClusterInfo(broker_addr_table={"b": BROKER}, cluster_addr_table={"c": ["b"]})

    body = cluster.encode()

    assert body == (
        b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"127.0.0.1:10911",1:"127.0.0.1:10921"},'
        b'"brokerName":"b","cluster":"c"}},"clusterAddrTable":{"c":["b"]}}'
    )
    assert ClusterInfo.decode(body) == cluster


def test_flat_answers_have_the_originals_bytes() -> None:
    assert KVTable(table={"k": "v"}).encode() == b'{"table":{"k":"v"}}'
    assert TopicList(topic_list=["T"]).encode() == b'{"topicList":["T"]}'
    assert TopicList(broker_addr="1.1.1.1:1", topic_list=["T"]).encode() == (
        b'{"brokerAddr":"1.1.1.1:1","topicList":["T"]}'
    )


def test_a_registration_is_read_back() -> None:
    body = RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            data_version=DataVersion(counter=3, timestamp=17),
            topic_config_table={"T": TopicConfig(topic_name="T")},
        )
    )

    text = body.encode()

    assert text == (
        b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":3,'
        b'"timestamp":17},"topicConfigTable":{"T":{"order":false,"perm":6,"readQueueNums":16,'
        b'"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":16}}}}'
    )
    assert RegisterBrokerBody.decode(text) == body


def test_a_registration_from_5_x_can_be_read() -> None:
    text = (
        b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":3,'
        b'"stateVersion":0,"timestamp":17},"mappingDataVersion":{"counter":0},'
        b'"topicConfigTable":{"T":{"attributes":{},"order":true,"perm":7,"readQueueNums":8,'
        b'"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":8}},'
        b'"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}}'
    )

    wrapper = RegisterBrokerBody.decode(text).topic_config_serialize_wrapper

    assert wrapper.data_version == DataVersion(counter=3, timestamp=17)
    assert wrapper.topic_config_table["T"].order


def test_a_compressed_registration_of_the_original_is_read() -> None:
    body = RegisterBrokerBody.decode(COMPRESSED, is_compressed=True)

    wrapper = body.topic_config_serialize_wrapper
    assert list(wrapper.topic_config_table) == ["T"]
    topic_config = wrapper.topic_config_table["T"]
    assert (topic_config.read_queue_nums, topic_config.write_queue_nums) == (8, 8)
    assert topic_config.perm == 6


def test_a_compressed_registration_has_the_originals_bytes() -> None:
    body = RegisterBrokerBody.decode(COMPRESSED, is_compressed=True)

    assert body.encode(is_compressed=True) == COMPRESSED


@pytest.mark.parametrize("cut", [1, 10, len(COMPRESSED) - 1])
def test_a_truncated_compressed_registration_is_a_value_error(cut: int) -> None:
    with pytest.raises(ValueError, match="compressed registration"):
        RegisterBrokerBody.decode(COMPRESSED[:cut], is_compressed=True)


def test_a_compressed_registration_that_explodes_is_rejected() -> None:
    bomb = zlib.compress(bytes(registration.INFLATED_BYTES_MAX + 1))

    with pytest.raises(ValueError, match="inflates"):
        RegisterBrokerBody.decode(bomb, is_compressed=True)


@pytest.mark.parametrize(
    "inside",
    [
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x02{}\x7f\xff\xff\xff",
        b"\x00\x00\x00\x02{}\x00\x00\x00\x01\x00\x00\x00\x03T 8",
        b"\x00\x00\x00\x02{}\x00\x00\x00\x01\x00\x00\x00\x09T x 8 6 S",
    ],
)
def test_a_corrupt_compressed_registration_is_a_value_error(inside: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        RegisterBrokerBody.decode(zlib.compress(inside), is_compressed=True)


def test_the_checksum_matches_the_original() -> None:
    assert registration.body_crc32(b"hello") == 907060870
