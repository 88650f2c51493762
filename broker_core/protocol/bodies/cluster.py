"""ClusterInfo: all brokers by name, all broker names by cluster; always in fastjson's dialect.

Source: common/protocol/body/ClusterInfo.java (4.9.7).
"""

from __future__ import annotations

import msgspec

from broker_core.protocol import java_json
from broker_core.protocol.bodies.route import BrokerData


class ClusterInfo(msgspec.Struct, rename="camel", kw_only=True):
    """The answer to GET_BROKER_CLUSTER_INFO."""

    broker_addr_table: dict[str, BrokerData]
    cluster_addr_table: dict[str, list[str]]

    def encode(self) -> bytes:
        return java_json.encode(msgspec.to_builtins(self))

    @classmethod
    def decode(cls, body: bytes) -> ClusterInfo:
        """Decode a cluster in either dialect.

        Raises:
            ValueError: the body isn't a cluster.
        """
        return java_json.decode_as(body, cls)
