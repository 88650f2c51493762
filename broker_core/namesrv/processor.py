"""The name server's requests: header -> one call -> answer.

Source: namesrv/processor/DefaultRequestProcessor.java (4.9.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from broker_core.errors import RequestRefusedError
from broker_core.message.data_version import DataVersion
from broker_core.namesrv.kv_configs import ORDER_TOPIC_CONFIG
from broker_core.namesrv.routes import BrokerIdentity
from broker_core.protocol import java_json
from broker_core.protocol.bodies.registration import (
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
    body_crc32,
)
from broker_core.protocol.bodies.tables import KVTable, TopicList
from broker_core.protocol.codes import V3_0_11, V4_9_4, RequestCode, ResponseCode
from broker_core.protocol.headers.fields import boolean, int32, int64, text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker_core.namesrv.kv_configs import KvConfigs
    from broker_core.namesrv.routes import RouteTable
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.remoting.dispatch import Handler

SUGGESTION = "\nSee {} for further details."
NO_ROUTE_URL = "http://rocketmq.apache.org/docs/faq/"
SHOWN_CONFIG_KEYS = frozenset(
    {"listenPort", "bindAddress", "orderMessageEnable", "serverChannelMaxIdleTimeSeconds"}
)
"""What GET_NAMESRV_CONFIG may show: no path of a file, nothing secret."""
HOSTS_REFUSED = frozenset({"0.0.0.0", "::", "[::]", "169.254.169.254"})
"""Addresses that lead every client somewhere else than to a broker."""


class NameServerProcessor:
    """Serves the codes of the name server. Event loop only."""

    def __init__(
        self, routes: RouteTable, kv_configs: KvConfigs, config: Mapping[str, str] | None = None
    ) -> None:
        self._routes = routes
        self._kv_configs = kv_configs
        self._config = dict(config or {})
        self._is_order_message_enabled = self._config.get("orderMessageEnable") == "true"

    def handlers(self) -> dict[int, Handler]:
        """Return the literal table from code to handler."""
        routes = self._routes
        return {
            RequestCode.PUT_KV_CONFIG: self.put_kv_config,
            RequestCode.GET_KV_CONFIG: self.get_kv_config,
            RequestCode.DELETE_KV_CONFIG: self.delete_kv_config,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.get_kv_list,
            RequestCode.REGISTER_BROKER: self.register_broker,
            RequestCode.UNREGISTER_BROKER: self.unregister_broker,
            RequestCode.QUERY_DATA_VERSION: self.query_data_version,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.get_route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.get_cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_perm,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _topic_list(routes.topics),
            RequestCode.GET_UNIT_TOPIC_LIST: _topic_list(routes.unit_topics),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: _topic_list(routes.unit_sub_topics),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _topic_list(
                routes.unit_sub_ununit_topics
            ),
            RequestCode.GET_TOPICS_BY_CLUSTER: self.get_topics_by_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.get_system_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update_config,
            RequestCode.GET_NAMESRV_CONFIG: self.get_config,
        }

    def put_kv_config(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """PUT_KV_CONFIG. Answers SUCCESS, or SYSTEM_ERROR when it cannot be kept."""
        fields = request.ext_fields
        namespace, key = fields.get("namespace"), fields.get("key")
        if not namespace or not key:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        self._kv_configs.put(namespace, key, text(fields, "value"))
        return request.answer(ResponseCode.SUCCESS)

    def get_kv_config(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_KV_CONFIG. Answers SUCCESS with `value`, or QUERY_NOT_FOUND."""
        namespace = text(request.ext_fields, "namespace")
        key = text(request.ext_fields, "key")
        value = self._kv_configs.get(namespace, key)
        if value is None:
            return request.answer(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {namespace} Key: {key}",
            )
        return request.answer(ResponseCode.SUCCESS, None, {"value": value})

    def delete_kv_config(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """DELETE_KV_CONFIG. Answers SUCCESS, whether there was one or not."""
        fields = request.ext_fields
        self._kv_configs.delete(text(fields, "namespace"), text(fields, "key"))
        return request.answer(ResponseCode.SUCCESS)

    def get_kv_list(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_KVLIST_BY_NAMESPACE. Answers SUCCESS with a KVTable, or QUERY_NOT_FOUND."""
        namespace = text(request.ext_fields, "namespace")
        table = self._kv_configs.namespace(namespace)
        if not table:
            return request.answer(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}"
            )
        return request.answer(ResponseCode.SUCCESS, body=KVTable(table=table).encode())

    def register_broker(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """REGISTER_BROKER. Answers SUCCESS with the order topics, or SYSTEM_ERROR.

        A slave also learns its master's address with that for replication.
        """
        fields = request.ext_fields
        announced_crc32 = int32(fields, "bodyCrc32", 0)
        if announced_crc32 != 0 and announced_crc32 != body_crc32(request.body):
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        identity = _identity(fields)
        _check_address(identity.broker_addr)
        try:
            body = _registration(request)
        except ValueError as error:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"the registration cannot be read: {error}"
            ) from error
        result = self._routes.register(
            identity, body.topic_config_serialize_wrapper, body.filter_server_list, connection
        )
        answer_fields = {}
        if result.master_addr:
            answer_fields["haServerAddr"] = result.ha_server_addr
            answer_fields["masterAddr"] = result.master_addr
        order_topics = self._kv_configs.namespace(ORDER_TOPIC_CONFIG)
        return request.answer(
            ResponseCode.SUCCESS,
            None,
            answer_fields,
            KVTable(table=order_topics).encode() if order_topics else b"",
        )

    def unregister_broker(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """UNREGISTER_BROKER. Answers SUCCESS, whether it was registered or not."""
        self._routes.unregister(_identity(request.ext_fields))
        return request.answer(ResponseCode.SUCCESS)

    def query_data_version(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """QUERY_DATA_VERSION. Answers SUCCESS with `changed`; unchanged is a sign of life."""
        address = text(request.ext_fields, "brokerAddr")
        try:
            data_version = java_json.decode_as(request.body, DataVersion)
        except ValueError as error:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"the body is no DataVersion: {error}"
            ) from error
        is_changed = self._routes.is_changed(address, data_version)
        if not is_changed:
            self._routes.heard(address)
        ours = self._routes.data_version_of(address)
        return request.answer(
            ResponseCode.SUCCESS,
            None,
            {"changed": "true" if is_changed else "false"},
            msgspec.json.encode(ours) if ours is not None else b"",
        )

    def get_route(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_ROUTEINFO_BY_TOPIC. Answers SUCCESS with a TopicRouteData, or TOPIC_NOT_EXIST."""
        fields = request.ext_fields
        topic = text(fields, "topic")
        is_standard = request.version >= V4_9_4 or boolean(fields, "acceptStandardJsonOnly")
        body = self._routes.encoded_route(topic, is_standard=is_standard)
        if body is None:
            return request.answer(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {topic}"
                + SUGGESTION.format(NO_ROUTE_URL),
            )
        if self._is_order_message_enabled:
            order_topic_conf = self._kv_configs.get(ORDER_TOPIC_CONFIG, topic)
            route = self._routes.route(topic, order_topic_conf)
            if route is not None:
                body = route.encode(is_standard=is_standard)
        return request.answer(ResponseCode.SUCCESS, body=body)

    def get_cluster_info(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_BROKER_CLUSTER_INFO. Answers SUCCESS with a ClusterInfo in fastjson's dialect."""
        return request.answer(ResponseCode.SUCCESS, body=self._routes.cluster_info().encode())

    def wipe_write_perm(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """WIPE_WRITE_PERM_OF_BROKER. Answers SUCCESS with `wipeTopicCount`."""
        count = self._routes.wipe_write_perm(text(request.ext_fields, "brokerName"))
        return request.answer(ResponseCode.SUCCESS, None, {"wipeTopicCount": str(count)})

    def add_write_perm(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """ADD_WRITE_PERM_OF_BROKER. Answers SUCCESS with `addTopicCount`."""
        count = self._routes.add_write_perm(text(request.ext_fields, "brokerName"))
        return request.answer(ResponseCode.SUCCESS, None, {"addTopicCount": str(count)})

    def get_topics_by_cluster(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_TOPICS_BY_CLUSTER. Answers SUCCESS with a TopicList, empty for an unknown cluster."""
        topics = self._routes.topics_of_cluster(text(request.ext_fields, "cluster"))
        return request.answer(ResponseCode.SUCCESS, body=TopicList(topic_list=topics).encode())

    def get_system_topics(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_SYSTEM_TOPIC_LIST_FROM_NS. Answers SUCCESS with names, a broker that knows more."""
        topics, broker_addr = self._routes.system_topics()
        topic_list = TopicList(broker_addr=broker_addr, topic_list=topics)
        return request.answer(ResponseCode.SUCCESS, body=topic_list.encode())

    def delete_topic(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """DELETE_TOPIC_IN_NAMESRV. Answers SUCCESS, whether it was known or not."""
        fields = request.ext_fields
        self._routes.delete_topic(text(fields, "topic"), fields.get("clusterName") or None)
        return request.answer(ResponseCode.SUCCESS)

    def update_config(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """UPDATE_NAMESRV_CONFIG. Answers NO_PERMISSION.

        Differs: the original lets anybody who reaches the port rewrite its configuration, file
        paths included.
        """
        raise RequestRefusedError(
            ResponseCode.NO_PERMISSION,
            "the name server's configuration is changed in its file, not over the network",
        )

    def get_config(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_NAMESRV_CONFIG. Answers SUCCESS with the properties that are nobody's secret."""
        lines = [
            f"{key}={self._config[key]}\n"
            for key in sorted(self._config.keys() & SHOWN_CONFIG_KEYS)
        ]
        return request.answer(ResponseCode.SUCCESS, body="".join(lines).encode())


def _topic_list(topics: Callable[[], list[str]]) -> Handler:
    def handler(request: RemotingCommand, _: Connection) -> RemotingCommand:
        return request.answer(ResponseCode.SUCCESS, body=TopicList(topic_list=topics()).encode())

    return handler


def _identity(fields: Mapping[str, str]) -> BrokerIdentity:
    return BrokerIdentity(
        cluster_name=text(fields, "clusterName"),
        broker_name=text(fields, "brokerName"),
        broker_id=int64(fields, "brokerId"),
        broker_addr=text(fields, "brokerAddr"),
        ha_server_addr=fields.get("haServerAddr", ""),
    )


def _check_address(address: str) -> None:
    host, _, port = address.rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536
    if not host or not is_port or host in HOSTS_REFUSED:
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"{address[:100]!r} is not an address that clients could connect to",
        )


def _registration(request: RemotingCommand) -> RegisterBrokerBody:
    if not request.body:
        return RegisterBrokerBody()
    if request.version < V3_0_11:
        topics = TopicConfigSerializeWrapper.decode(request.body)
        return RegisterBrokerBody(topic_config_serialize_wrapper=topics)
    return RegisterBrokerBody.decode(
        request.body, is_compressed=boolean(request.ext_fields, "compressed")
    )
