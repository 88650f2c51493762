"""Parts of the requests in request_cases.py: names, common fields, bodies."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.support.raw_remoting import pull_fields, send_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

TOPIC, GROUP, LIVE_GROUP, LIVE_PRODUCERS = "rows", "rows-group", "rows-live", "rows-producers"
ENDED_TOPIC = "rows-ended"
"""The topic of the half message that the cases end."""
CLIENT_ID = "rows-client"
DLQ_TOPIC = f"%DLQ%{GROUP}"
QUEUES = 2
MESSAGES = 5
COMMITTED = 3
LEAVES_OUT = "Trebuchet names the missing field; RocketMQ reads it as 0 or null"


@dataclass(frozen=True, slots=True)
class Case:
    """One request.

    Attributes:
        name_server: it goes to the name server.
        differs: why our answer deliberately differs; empty if both answer the same.
    """

    name: str
    code: int
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    name_server: bool = False
    differs: str = ""


def text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def heartbeat(
    client_id: str, group: str, expression_type: str = "TAG", expression: str = "*"
) -> bytes:
    subscription = {
        "classFilterMode": False,
        "codeSet": [],
        "expressionType": expression_type,
        "subString": expression,
        "subVersion": 1,
        "tagsSet": [],
        "topic": TOPIC,
    }
    consumer = {
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "groupName": group,
        "messageModel": "CLUSTERING",
        "subscriptionDataSet": [subscription],
        "unitMode": False,
    }
    return text(
        {
            "clientID": client_id,
            "consumerDataSet": [consumer],
            "producerDataSet": [{"groupName": LIVE_PRODUCERS}],
        }
    )


def check_config(expression_type: str, expression: str) -> bytes:
    return text(
        {
            "clientId": "c",
            "group": GROUP,
            "subscriptionData": {
                "expressionType": expression_type,
                "subString": expression,
                "subVersion": 1,
                "topic": TOPIC,
            },
        }
    )


def without(fields: Mapping[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in fields.items() if key != name}


def queue(queue_id: int = 0) -> dict[str, Any]:
    return {"brokerName": "broker-a", "queueId": queue_id, "topic": TOPIC}


def lock(client_id: str) -> bytes:
    return text({"clientId": client_id, "consumerGroup": LIVE_GROUP, "mqSet": [queue()]})


SEND = send_fields(TOPIC)
SEND_V2 = {
    "a": "p",
    "b": TOPIC,
    "c": "TBW102",
    "d": "4",
    "e": "1",
    "f": "0",
    "g": "1",
    "h": "0",
    "i": "",
    "j": "0",
    "k": "false",
    "m": "false",
}
DEAD = {**SEND, "topic": f"%RETRY%{GROUP}", "reconsumeTimes": "1"}
RETRY = {
    **SEND,
    "topic": f"%RETRY%{GROUP}",
    "properties": f"DELAY\x014\x02RETRY_TOPIC\x01{TOPIC}",
    "reconsumeTimes": "1",
}
PULL = pull_fields(TOPIC, 0, 0)
QUEUE = {"topic": TOPIC, "queueId": "0"}
NO_QUEUE = {"topic": TOPIC, "queueId": "77"}
NO_TOPIC = {"topic": "nowhere", "queueId": "0"}
OFFSET = {"consumerGroup": GROUP, **QUEUE}
QUERY = {
    "topic": TOPIC,
    "key": "k1",
    "maxNum": "32",
    "beginTimestamp": "0",
    "endTimestamp": "9999999999999",
}
BACK = {"offset": "{offset}", "group": GROUP, "delayLevel": "0", "originTopic": TOPIC}
END = {
    "producerGroup": "half-producers",
    "tranStateTableOffset": "{half_queue_offset}",
    "commitLogOffset": "{half_offset}",
    "commitOrRollback": "8",
    "fromTransactionCheck": "false",
    "msgId": "x",
}
RESET = {"topic": TOPIC, "group": GROUP, "timestamp": "0", "isForce": "true"}
GROUP_CONFIG = {
    "brokerId": 0,
    "consumeBroadcastEnable": True,
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "groupName": "made",
    "notifyConsumerIdsChangedEnable": True,
    "retryMaxTimes": 16,
    "retryQueueNums": 1,
    "whichBrokerWhenConsumeSlowly": 1,
}
CALL = {"consumerGroup": GROUP, "clientId": "nobody"}
BROKER = {
    "brokerName": "other",
    "brokerAddr": "127.0.0.1:10001",
    "clusterName": "other-cluster",
    "brokerId": "0",
    "haServerAddr": "127.0.0.1:10002",
}
STATS = {
    "TOPIC_PUT_NUMS": TOPIC,
    "TOPIC_PUT_SIZE": TOPIC,
    "GROUP_GET_NUMS": f"{TOPIC}@raw-consumer",
    "GROUP_GET_SIZE": f"{TOPIC}@raw-consumer",
    "GROUP_GET_LATENCY": f"0@{TOPIC}@raw-consumer",
    "QUEUE_PUT_NUMS": "SCHEDULE_TOPIC_XXXX@1",
    "QUEUE_PUT_SIZE": "SCHEDULE_TOPIC_XXXX@1",
    "QUEUE_GET_NUMS": "SCHEDULE_TOPIC_XXXX@0@SCHEDULE_CONSUMER",
    "QUEUE_GET_SIZE": "SCHEDULE_TOPIC_XXXX@0@SCHEDULE_CONSUMER",
    "SNDBCK_PUT_NUMS": f"{TOPIC}@{GROUP}",
    "BROKER_PUT_NUMS": "DefaultCluster",
    "BROKER_GET_NUMS": "DefaultCluster",
    "GROUP_GET_FROM_DISK_NUMS": f"{TOPIC}@raw-consumer",
    "BROKER_GET_FROM_DISK_SIZE": "DefaultCluster",
    "COMMERCIAL_SEND_TIMES": f"owner@{TOPIC}@{GROUP}@SEND_SUCCESS",
    "GROUP_GET_FALL_SIZE": f"0@{TOPIC}@raw-consumer",
    "GROUP_GET_FALL_TIME": f"0@{TOPIC}@raw-consumer",
    "NO_SUCH_SET": TOPIC,
}
