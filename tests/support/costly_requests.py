"""The most expensive allowed requests of each request code, many at a time from one client.

`BROKER` and `NAME_SERVER` have a row for every supported code; a test fails if one is missing.
A row returns the frames for one connection and the number of expected answers.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

from broker_core.protocol.codes import RequestCode as Code
from tests.support.builders import batch_item
from tests.support.raw_remoting import (
    RawClient,
    create_topic,
    frame,
    pull_fields,
    send_fields,
    topic_fields,
)

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC = "Costly"
HEAVY = "Heavy"
"""A topic whose messages have 32 KiB of properties."""
GROUP = "costly-group"
MIB = 1 << 20
FULL_TEXT = 32_700
"""Slightly fewer bytes than the limit of a message's properties."""


class Costly(NamedTuple):
    """Frames and the number of answers they expect."""

    frames: bytes
    answers: int


class Scene(NamedTuple):
    """The messages stored in advance."""

    large: int
    """The log offset of a 4 MB message."""


Row = "Callable[[Scene], Costly]"


def compact(code: int, fields: dict[str, str], body: bytes = b"", opaque: int = 1) -> bytes:
    """Return a request as clients write it; the compiled turn reads no other header."""
    header = {
        "code": code,
        "extFields": fields,
        "flag": 0,
        "language": "JAVA",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": 399,
    }
    return frame(json.dumps(header, separators=(",", ":")).encode(), body)


def times(count: int, code: int, fields: dict[str, str], body: bytes = b"") -> Costly:
    return Costly(compact(code, fields, body) * count, count)


def several(*parts: Costly) -> Costly:
    return Costly(b"".join(each.frames for each in parts), sum(each.answers for each in parts))


def text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def small(code: int, requests: int = 800, **fields: str) -> Callable[[Scene], Costly]:
    """Requests that are costly only in large numbers."""
    return lambda _: times(requests, code, {"topic": TOPIC, "group": GROUP, **fields})


def of_body(code: int, content: Any = None, **fields: str) -> Callable[[Scene], Costly]:
    """Requests with a body: plain, long, and slow to parse."""

    def make(_: Scene) -> Costly:
        plain = {} if content is None else content
        return several(
            times(100, code, fields, text(plain)),
            times(2, code, fields, text({**plain, "unknown": [[]] * (MIB // 3 - 1_000)})),
            times(4, code, fields, b"{" + b"1:1," * (128 * 1024 // 4 - 2) + b"1:1}"),
            times(2, code, fields, b"{" + b"1:1," * (16 * MIB // 4 - 200) + b"1:1}"),
        )

    return make


def send(code: int, names: Callable[..., dict[str, str]]) -> Callable[[Scene], Costly]:
    def make(_: Scene) -> Costly:
        pairs = "a\x01b\x02" * (FULL_TEXT // 4)
        keys = "KEYS\x01" + "k " * (FULL_TEXT // 2 - 3)
        return several(
            times(3_000, code, names(TOPIC), b"x"),
            times(6, code, names(TOPIC), bytes(4 * MIB)),
            times(30, code, names(TOPIC, properties=pairs), b"x"),
            times(30, code, names(TOPIC, properties=keys), b"x"),
            times(1, code, names(TOPIC), bytes(15 * MIB)),
            times(6, code, {**names(TOPIC), "more": "\\" * (MIB // 2 - 1_000)}, b"x"),
        )

    return make


SHORT = dict(
    zip(
        "abcdefghijkm",
        (
            "producerGroup",
            "topic",
            "defaultTopic",
            "defaultTopicQueueNums",
            "queueId",
            "sysFlag",
            "bornTimestamp",
            "flag",
            "properties",
            "reconsumeTimes",
            "unitMode",
            "batch",
        ),
        strict=True,
    )
)


def short_send_fields(topic: str, *, properties: str = "", batch: str = "false") -> dict[str, str]:
    long = {**send_fields(topic, properties=properties), "batch": batch}
    return {short: long[name] for short, name in SHORT.items()}


def send_batches(_: Scene) -> Costly:
    code, fields = Code.SEND_BATCH_MESSAGE, short_send_fields(TOPIC, batch="true")
    unique = batch_item(b"x" * 20, b"UNIQ_KEY\x01" + b"u" * 32)
    keys = batch_item(b"x", b"KEYS\x01" + b"k " * (FULL_TEXT // 2 - 3))
    return several(
        times(1, code, fields, unique * 16_384),
        times(3, code, fields, unique * 7_000),
        times(6, code, fields, unique * 2_000),
        times(1, code, fields, batch_item(b"") * 190_000),
        times(1, code, fields, keys * 100),
        times(6, code, fields, keys),
    )


def pulls(code: int) -> Callable[[Scene], Costly]:
    def make(_: Scene) -> Costly:
        def pull(topic: str, expression: str, kind: str = "TAG", offset: int = 0) -> bytes:
            fields = pull_fields(topic, 0, offset)
            return compact(code, {**fields, "subscription": expression, "expressionType": kind})

        tags = [
            pull(TOPIC, "||".join(f"{number}-{tag:05d}" for tag in range(2_000)))
            for number in range(60)
        ]
        many = " or ".join(f"n{number} = '1'" for number in range(200))
        searches = (many, "a = 'x' or b = 'x' or zz = 'x'", " or ".join(["a > 1"] * 250))
        by_sql = [pull(HEAVY, each, "SQL92") for each in searches for _ in range(6)]
        all_of = [pull(TOPIC, "*", offset=offset) for offset in range(1_500)]
        frames = [*tags, *by_sql, *all_of]
        return Costly(b"".join(frames), len(frames))

    return make


def heartbeats(_: Scene) -> Costly:
    frames = []
    expression = "abcdefghij > 1234567890 AND b=1"
    for beat in range(3):
        target = [
            {
                "topic": f"T{number}",
                "subString": expression[: 31 - len(str(beat))] + str(beat),
                "expressionType": "SQL92",
                "subVersion": beat,
            }
            for number in range(1_000)
        ]
        spread = {
            "clientID": "c",
            "producerDataSet": [{"groupName": f"p{number}"} for number in range(500)],
            "consumerDataSet": [
                {
                    "groupName": f"g{number}",
                    "subscriptionDataSet": target[2 * number : 2 * number + 2],
                }
                for number in range(500)
            ],
        }
        frames.append(compact(Code.HEART_BEAT, {}, text(spread)))
    rest = of_body(Code.HEART_BEAT, {"clientID": "c", "producerDataSet": [{"groupName": "p"}]})
    return several(Costly(b"".join(frames), len(frames)), rest(Scene(0)))


def locks(code: int) -> Callable[[Scene], Costly]:
    queues = [{"brokerName": "broker-a", "queueId": each, "topic": "T"} for each in range(5_000)]
    content = {"clientId": "c", "consumerGroup": GROUP, "mqSet": queues}
    rest = of_body(code, {**content, "mqSet": queues[:1]})
    return lambda scene: several(times(5, code, {}, text(content)), rest(scene))


def client_configs(scene: Scene) -> Costly:
    conditions = " or ".join(f"a{number} = '1'" for number in range(255))
    data = {"topic": TOPIC, "subString": conditions, "expressionType": "SQL92"}
    content = {"clientId": "c", "group": GROUP, "subscriptionData": data}
    rest = of_body(Code.CHECK_CLIENT_CONFIG, content)(scene)
    return several(times(40, Code.CHECK_CLIENT_CONFIG, {}, text(content)), rest)


def properties_of(code: int) -> Callable[[Scene], Costly]:
    def make(_: Scene) -> Costly:
        lines = b"".join(b"k%d=1\n" % number for number in range(20_000))
        return several(
            times(300, code, {}, b""),
            times(5, code, {}, lines[: 32 * 1024]),
            times(1, code, {}, b"a=1\n" * (4 * MIB - 100)),
        )

    return make


def views(scene: Scene) -> Costly:
    return times(30, Code.VIEW_MESSAGE_BY_ID, {"offset": str(scene.large)})


def pops(code: int) -> Callable[[Scene], Costly]:
    """Pops of every kind; most leases end at once, so that retries are popped, too."""

    def make(_: Scene) -> Costly:
        def pop(topic: str, **more: str) -> bytes:
            fields = {
                "consumerGroup": GROUP,
                "topic": topic,
                "queueId": "-1",
                "maxMsgNums": "32",
                "invisibleTime": "0",
                "pollTime": "0",
                "bornTime": str(1 << 62),
                "initMode": "0",
            }
            return compact(code, {**fields, **more})

        conditions = " or ".join(f"n{number} = '1'" for number in range(200))
        by_tag = "||".join(f"tag{tag:05d}" for tag in range(2_000))
        frames = [
            *(pop(HEAVY) for _ in range(20)),
            *(pop(HEAVY, exp=conditions, expType="SQL92") for _ in range(20)),
            *(pop(TOPIC, exp=by_tag, expType="TAG") for _ in range(40)),
            *(pop(TOPIC, invisibleTime="1000") for _ in range(100)),
            *(pop(TOPIC, order="true", attemptId="a" * 255) for _ in range(100)),
        ]
        return Costly(b"".join(frames), len(frames))

    return make


def acknowledgements(code: int) -> Callable[[Scene], Costly]:
    receipt = "0 1700000000000 60000 0 0 broker-a 0 0"
    return small(
        code, consumerGroup=GROUP, queueId="0", offset="0", extraInfo=receipt, invisibleTime="0"
    )


def batch_acknowledgements(scene: Scene) -> Costly:
    one = {"c": GROUP, "t": TOPIC, "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 0, "it": 0}
    content = {"brokerName": "broker-a", "acks": [{**one, "b": "/" * 1_024}]}
    entries = [{**one, "pt": number, "b": "/" * 1_024} for number in range(1_024)]
    too_many = [one] * 200_000
    rest = of_body(Code.BATCH_ACK_MESSAGE, content)(scene)
    return several(
        *(
            times(2, Code.BATCH_ACK_MESSAGE, {}, text({**content, "acks": acks}))
            for acks in (entries, [{**one, "b": "/" * (8 * MIB)}], too_many)
        ),
        rest,
    )


def given_back(scene: Scene) -> Costly:
    fields = {"group": GROUP, "offset": str(scene.large), "delayLevel": "3"}
    return times(10, Code.CONSUMER_SEND_MSG_BACK, fields)


def reset_offsets(scene: Scene) -> Costly:
    places = {"topic": TOPIC, "group": GROUP, "offsets": [[0, 0]] * 10_000}
    rest = of_body(Code.RESET_OFFSETS, {**places, "offsets": []})(scene)
    return several(times(5, Code.RESET_OFFSETS, {}, text(places)), rest)


def registrations(_: Scene) -> Costly:
    """60,000 topics of one broker, plain and compressed, and a body that inflates to 16 MiB."""
    count = 59_000
    names = [f"topic-{number}-of-somebody" for number in range(count)]
    table = {name: {"topicName": name, "readQueueNums": 4, "perm": 6} for name in names}
    version = {"counter": 1, "timestamp": 1}
    wrapper = {"dataVersion": version, "topicConfigTable": table}
    plain = text({"topicConfigSerializeWrapper": wrapper, "filterServerList": []})
    sized = [
        text({"counter": 2, "timestamp": 2}),
        *(f"{x} 4 4 6 SINGLE_TAG".encode() for x in names),
    ]
    pieces = [struct.pack(">i", len(each)) + each for each in sized]
    inflated = b"".join(
        [pieces[0], struct.pack(">i", count), *pieces[1:], struct.pack(">i", 2), b"[]"]
    )
    fields = {
        "brokerName": "costly",
        "brokerAddr": "127.0.0.1:20911",
        "clusterName": "c",
        "haServerAddr": "127.0.0.1:20912",
        "brokerId": "0",
    }
    zipped = {**fields, "compressed": "true"}
    code = Code.REGISTER_BROKER
    return several(
        times(1, code, fields, plain),
        times(1, code, zipped, zlib.compress(inflated)),
        times(2, code, zipped, zlib.compress(bytes(16 * MIB))),
        times(1, code, fields, b'{"unknown":[' + b"[]," * (5 * MIB) + b"[]]}"),
        times(4, code, fields, b"{" + b"1:1," * (60 * 1024 // 4) + b"1:1}"),
        times(1, code, fields, b"{" + b"1:1," * (15 * MIB // 4) + b"1:1}"),
    )


BROKER: dict[int, Callable[[Scene], Costly]] = {
    Code.SEND_MESSAGE: send(Code.SEND_MESSAGE, send_fields),
    Code.SEND_MESSAGE_V2: send(Code.SEND_MESSAGE_V2, short_send_fields),
    Code.SEND_BATCH_MESSAGE: send_batches,
    Code.CONSUMER_SEND_MSG_BACK: given_back,
    Code.END_TRANSACTION: small(
        Code.END_TRANSACTION,
        300,
        producerGroup="p",
        tranStateTableOffset="0",
        commitLogOffset="0",
        commitOrRollback="8",
        msgId="0" * 32,
        transactionId="0",
    ),
    Code.RECALL_MESSAGE: small(Code.RECALL_MESSAGE, 200, recallHandle="djEgVCBiIDEgaw=="),
    Code.RESUME_CHECK_HALF_MESSAGE: small(Code.RESUME_CHECK_HALF_MESSAGE, 200, msgId="0" * 32),
    Code.SEND_REPLY_MESSAGE: send(Code.SEND_REPLY_MESSAGE, send_fields),
    Code.SEND_REPLY_MESSAGE_V2: send(Code.SEND_REPLY_MESSAGE_V2, short_send_fields),
    Code.PULL_MESSAGE: pulls(Code.PULL_MESSAGE),
    Code.LITE_PULL_MESSAGE: pulls(Code.LITE_PULL_MESSAGE),
    Code.POP_MESSAGE: pops(Code.POP_MESSAGE),
    Code.ACK_MESSAGE: acknowledgements(Code.ACK_MESSAGE),
    Code.BATCH_ACK_MESSAGE: batch_acknowledgements,
    Code.PEEK_MESSAGE: pops(Code.PEEK_MESSAGE),
    Code.CHANGE_MESSAGE_INVISIBLETIME: acknowledgements(Code.CHANGE_MESSAGE_INVISIBLETIME),
    Code.NOTIFICATION: pops(Code.NOTIFICATION),
    Code.POLLING_INFO: small(Code.POLLING_INFO, consumerGroup=GROUP, queueId="0"),
    Code.QUERY_ASSIGNMENT: of_body(
        Code.QUERY_ASSIGNMENT,
        {"topic": TOPIC, "consumerGroup": GROUP, "clientId": "c", "strategyName": "AVG"},
    ),
    Code.SET_MESSAGE_REQUEST_MODE: of_body(
        Code.SET_MESSAGE_REQUEST_MODE,
        {"topic": TOPIC, "consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 0},
    ),
    Code.GET_ALL_MESSAGE_REQUEST_MODE: small(Code.GET_ALL_MESSAGE_REQUEST_MODE),
    Code.HEART_BEAT: heartbeats,
    Code.UNREGISTER_CLIENT: small(
        Code.UNREGISTER_CLIENT, clientID="c", producerGroup="p", consumerGroup=GROUP
    ),
    Code.CHECK_CLIENT_CONFIG: client_configs,
    Code.GET_CONSUMER_LIST_BY_GROUP: small(Code.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=GROUP),
    Code.LOCK_BATCH_MQ: locks(Code.LOCK_BATCH_MQ),
    Code.UNLOCK_BATCH_MQ: locks(Code.UNLOCK_BATCH_MQ),
    Code.QUERY_CONSUMER_OFFSET: small(Code.QUERY_CONSUMER_OFFSET, consumerGroup=GROUP, queueId="0"),
    Code.UPDATE_CONSUMER_OFFSET: small(
        Code.UPDATE_CONSUMER_OFFSET, consumerGroup=GROUP, queueId="0", commitOffset="1"
    ),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: small(
        Code.SEARCH_OFFSET_BY_TIMESTAMP, queueId="0", timestamp="1700000000000"
    ),
    Code.GET_MAX_OFFSET: small(Code.GET_MAX_OFFSET, queueId="0"),
    Code.GET_MIN_OFFSET: small(Code.GET_MIN_OFFSET, queueId="0"),
    Code.GET_EARLIEST_MSG_STORETIME: small(Code.GET_EARLIEST_MSG_STORETIME, queueId="0"),
    Code.QUERY_MESSAGE: lambda _: times(
        12,
        Code.QUERY_MESSAGE,
        {
            "topic": HEAVY,
            "key": "k",
            "maxNum": "64",
            "beginTimestamp": "0",
            "endTimestamp": str(1 << 62),
        },
    ),
    Code.VIEW_MESSAGE_BY_ID: views,
    Code.UPDATE_AND_CREATE_TOPIC: lambda _: several(
        *(
            times(1, Code.UPDATE_AND_CREATE_TOPIC, topic_fields(f"made-{number}"))
            for number in range(300)
        )
    ),
    Code.DELETE_TOPIC_IN_BROKER: small(Code.DELETE_TOPIC_IN_BROKER, topic="none"),
    Code.GET_ALL_TOPIC_CONFIG: small(Code.GET_ALL_TOPIC_CONFIG),
    Code.GET_TOPIC_CONFIG: small(Code.GET_TOPIC_CONFIG),
    Code.GET_TOPIC_STATS_INFO: small(Code.GET_TOPIC_STATS_INFO),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: small(Code.QUERY_TOPIC_CONSUME_BY_WHO),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: small(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: of_body(
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {"groupName": GROUP}
    ),
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: small(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
    Code.DELETE_SUBSCRIPTIONGROUP: small(Code.DELETE_SUBSCRIPTIONGROUP, groupName="none"),
    Code.GET_CONSUME_STATS: small(Code.GET_CONSUME_STATS, consumerGroup=GROUP),
    Code.GET_ALL_CONSUMER_OFFSET: small(Code.GET_ALL_CONSUMER_OFFSET),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: small(
        Code.INVOKE_BROKER_TO_RESET_OFFSET, timestamp="-1", isForce="true"
    ),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: small(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS),
    Code.GET_CONSUMER_RUNNING_INFO: small(
        Code.GET_CONSUMER_RUNNING_INFO, consumerGroup=GROUP, clientId="c"
    ),
    Code.CONSUME_MESSAGE_DIRECTLY: of_body(
        Code.CONSUME_MESSAGE_DIRECTLY, consumerGroup=GROUP, clientId="c"
    ),
    Code.QUERY_CONSUME_TIME_SPAN: small(Code.QUERY_CONSUME_TIME_SPAN),
    Code.QUERY_CORRECTION_OFFSET: small(Code.QUERY_CORRECTION_OFFSET, compareGroup=GROUP),
    Code.CLONE_GROUP_OFFSET: small(
        Code.CLONE_GROUP_OFFSET, srcGroup=GROUP, destGroup="clone", offline="true"
    ),
    Code.GET_BROKER_CONSUME_STATS: small(Code.GET_BROKER_CONSUME_STATS, 200, isOrder="false"),
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: small(Code.CLEAN_EXPIRED_CONSUMEQUEUE),
    Code.CLEAN_UNUSED_TOPIC: small(Code.CLEAN_UNUSED_TOPIC),
    Code.DELETE_EXPIRED_COMMITLOG: small(Code.DELETE_EXPIRED_COMMITLOG),
    Code.QUERY_CONSUME_QUEUE: small(
        Code.QUERY_CONSUME_QUEUE, 15, queueId="0", index="0", count="10000", consumerGroup=GROUP
    ),
    Code.GET_CONSUMER_CONNECTION_LIST: small(
        Code.GET_CONSUMER_CONNECTION_LIST, consumerGroup=GROUP
    ),
    Code.GET_PRODUCER_CONNECTION_LIST: small(Code.GET_PRODUCER_CONNECTION_LIST, producerGroup="p"),
    Code.GET_ALL_PRODUCER_INFO: small(Code.GET_ALL_PRODUCER_INFO),
    Code.GET_ALL_DELAY_OFFSET: small(Code.GET_ALL_DELAY_OFFSET),
    Code.GET_BROKER_RUNTIME_INFO: small(Code.GET_BROKER_RUNTIME_INFO),
    Code.GET_BROKER_CONFIG: small(Code.GET_BROKER_CONFIG),
    Code.UPDATE_BROKER_CONFIG: properties_of(Code.UPDATE_BROKER_CONFIG),
    Code.VIEW_BROKER_STATS_DATA: small(
        Code.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey=TOPIC
    ),
    Code.UPDATE_AND_CREATE_ACL_CONFIG: small(Code.UPDATE_AND_CREATE_ACL_CONFIG, accessKey="k"),
    Code.DELETE_ACL_CONFIG: small(Code.DELETE_ACL_CONFIG, accessKey="k"),
    Code.GET_BROKER_CLUSTER_ACL_INFO: small(Code.GET_BROKER_CLUSTER_ACL_INFO),
    Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: small(Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG),
    Code.GET_BROKER_CLUSTER_ACL_CONFIG: small(Code.GET_BROKER_CLUSTER_ACL_CONFIG),
    Code.GET_BROKER_HA_STATUS: small(Code.GET_BROKER_HA_STATUS),
    Code.NOTIFY_MIN_BROKER_ID_CHANGE: small(
        Code.NOTIFY_MIN_BROKER_ID_CHANGE, brokerName="broker-a"
    ),
    Code.RESET_OFFSETS: reset_offsets,
    Code.GET_HALF_MESSAGES: of_body(Code.GET_HALF_MESSAGES),
    Code.CHECK_HALF_MESSAGE: small(Code.CHECK_HALF_MESSAGE, queueOffset="0"),
    Code.GET_TIMER_MESSAGES: small(Code.GET_TIMER_MESSAGES, 200),
    Code.DISCONNECT_CLIENT: of_body(
        Code.DISCONNECT_CLIENT, {"groups": []}, group=GROUP, clientId="none"
    ),
    Code.EXPLAIN_ACCESS: small(Code.EXPLAIN_ACCESS, action="PUB", address="10.1.2.3"),
    Code.GET_BROKER_SAMPLE: small(Code.GET_BROKER_SAMPLE),
    Code.GET_BROKER_INTERNALS: small(Code.GET_BROKER_INTERNALS, 200),
    Code.UPDATE_DELAY_OFFSET: small(Code.UPDATE_DELAY_OFFSET, level="1", offset="0"),
    Code.GET_ALL_CONSUMER_FILTER: small(Code.GET_ALL_CONSUMER_FILTER, 5),
    Code.UPDATE_CONSUMER_FILTER: of_body(
        Code.UPDATE_CONSUMER_FILTER,
        {
            "consumerGroup": GROUP,
            "topic": TOPIC,
            "expressionType": "SQL92",
            "expression": " or ".join(f"a{number} = '1'" for number in range(255)),
        },
    ),
    Code.DELETE_CONSUMER_FILTER: of_body(
        Code.DELETE_CONSUMER_FILTER, {"consumerGroup": GROUP, "topic": TOPIC}
    ),
    Code.GET_REPLICATION_STATE: of_body(Code.GET_REPLICATION_STATE),
    Code.PROMOTE_BROKER: small(Code.PROMOTE_BROKER),
    Code.TRACE_WATCH: of_body(Code.TRACE_WATCH),
    Code.TRACE_UNWATCH: small(Code.TRACE_UNWATCH),
    Code.TRACE_LEVEL: of_body(Code.TRACE_LEVEL),
    Code.TRACE_RECORDED: of_body(Code.TRACE_RECORDED),
}


def at_name_server(code: int, **fields: str) -> Callable[[Scene], Costly]:
    fields = {"clusterName": "c", "brokerName": "costly", **fields}
    return lambda _: times(800, code, fields)


NAME_SERVER: dict[int, Callable[[Scene], Costly]] = {
    Code.REGISTER_BROKER: registrations,
    Code.QUERY_DATA_VERSION: of_body(
        Code.QUERY_DATA_VERSION, {"counter": 1, "timestamp": 1}, brokerAddr="127.0.0.1:20911"
    ),
    Code.PUT_KV_CONFIG: lambda _: several(
        *(
            times(
                1,
                Code.PUT_KV_CONFIG,
                {"namespace": "n", "key": f"key-{number}", "value": "v" * 8_000},
            )
            for number in range(140)
        )
    ),
    Code.GET_KV_CONFIG: at_name_server(Code.GET_KV_CONFIG, namespace="n", key="key-1"),
    Code.DELETE_KV_CONFIG: lambda _: several(
        *(
            times(1, Code.DELETE_KV_CONFIG, {"namespace": "n", "key": f"key-{number}"})
            for number in range(20)
        )
    ),
    Code.GET_KVLIST_BY_NAMESPACE: lambda _: times(
        30, Code.GET_KVLIST_BY_NAMESPACE, {"namespace": "n"}
    ),
    Code.GET_ROUTEINFO_BY_TOPIC: at_name_server(
        Code.GET_ROUTEINFO_BY_TOPIC, topic="topic-1-of-somebody"
    ),
    Code.GET_BROKER_CLUSTER_INFO: at_name_server(Code.GET_BROKER_CLUSTER_INFO),
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: lambda _: times(
        20, Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}
    ),
    Code.GET_UNIT_TOPIC_LIST: lambda _: times(20, Code.GET_UNIT_TOPIC_LIST, {}),
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: lambda _: times(20, Code.GET_HAS_UNIT_SUB_TOPIC_LIST, {}),
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: lambda _: times(
        20, Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, {}
    ),
    Code.GET_TOPICS_BY_CLUSTER: lambda _: times(20, Code.GET_TOPICS_BY_CLUSTER, {"cluster": "c"}),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: at_name_server(Code.GET_SYSTEM_TOPIC_LIST_FROM_NS),
    Code.WIPE_WRITE_PERM_OF_BROKER: lambda _: times(
        20, Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "costly"}
    ),
    Code.ADD_WRITE_PERM_OF_BROKER: lambda _: times(
        20, Code.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "costly"}
    ),
    Code.DELETE_TOPIC_IN_NAMESRV: at_name_server(Code.DELETE_TOPIC_IN_NAMESRV),
    Code.UPDATE_NAMESRV_CONFIG: properties_of(Code.UPDATE_NAMESRV_CONFIG),
    Code.GET_NAMESRV_CONFIG: at_name_server(Code.GET_NAMESRV_CONFIG),
    Code.UNREGISTER_BROKER: lambda _: times(
        20,
        Code.UNREGISTER_BROKER,
        {
            "brokerName": "costly",
            "brokerAddr": "127.0.0.1:20911",
            "clusterName": "c",
            "brokerId": "0",
        },
    ),
}
"""Keep this order: the first row's connection stays open, so its broker stays registered."""


def prepare(port: int) -> Scene:
    """Store the messages that the rows need. Blocks."""
    for topic in (TOPIC, HEAVY):
        create_topic(port, topic)
    with RawClient(port) as client:
        group = text({"groupName": GROUP})
        client.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group)
        pairs = "KEYS\x01k\x02" + "a\x01b\x02" * (FULL_TEXT // 4 - 10)
        for _ in range(300):
            fields = send_fields(HEAVY, properties=pairs)
            client.send_request(Code.SEND_MESSAGE, fields, b"x")
            client.read_answer()
        for _ in range(1_500):
            client.send_request(Code.SEND_MESSAGE, send_fields(TOPIC), bytes(1_000))
        client.read_successes(1_500)
        answer = client.ask(Code.SEND_MESSAGE, send_fields(TOPIC), bytes(4_000_000))
    return Scene(int(answer.fields["msgId"][-16:], 16))
