"""TopicRouteData: which brokers have a topic, with how many queues.

    {"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911"},"brokerName":"b","cluster":"c"}],
     "filterServerTable":{},"queueDatas":[{"brokerName":"b","perm":6,...}]}

Clients below 4.9.4 get the keys of brokerAddrs without quotes, as fastjson writes them.

Source: common/protocol/route/TopicRouteData.java (4.9.7), ClientRequestProcessor.java (5.3.3).
"""

from __future__ import annotations

import msgspec

from broker_core.protocol import java_json

MASTER_ID = 0


class QueueData(msgspec.Struct, rename="camel", kw_only=True, gc=False):
    """One broker's queues of a topic; perm bits 4 read, 2 write."""

    broker_name: str
    perm: int
    read_queue_nums: int
    topic_sys_flag: int = 0
    write_queue_nums: int


class BrokerData(msgspec.Struct, rename="camel", kw_only=True):
    """A master and its slaves: addresses by broker ID."""

    broker_addrs: dict[int, str]
    broker_name: str
    cluster: str


class TopicRouteData(msgspec.Struct, rename="camel", kw_only=True):
    """The answer to GET_ROUTEINFO_BY_TOPIC. `order_topic_conf` looks like "brokerA:4;brokerB:4"."""

    broker_datas: list[BrokerData]
    filter_server_table: dict[str, list[str]] = {}
    order_topic_conf: str | msgspec.UnsetType | None = msgspec.UNSET
    queue_datas: list[QueueData]

    def encode(self, *, is_standard: bool) -> bytes:
        """Return compact JSON; Go's parser treats a blank as part of a key."""
        if is_standard:
            return msgspec.json.encode(self)
        return java_json.encode(msgspec.to_builtins(self))

    @classmethod
    def decode(cls, body: bytes) -> TopicRouteData:
        """Decode a route in either dialect.

        Raises:
            ValueError: the body isn't a route.
        """
        return java_json.decode_as(body, cls)
