"""The name server's requests: header -> one call -> answer.

Source: namesrv/processor/DefaultRequestProcessor.java (4.9.7).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import msgspec

from broker_core.config.keys import SECTIONS
from broker_core.config.namesrv import NamesrvConfig
from broker_core.config.properties import parse_properties
from broker_core.config.unknown_keys import is_known, unknown_key
from broker_core.config.update import update_namesrv
from broker_core.config.values import text_of
from broker_core.errors import ConfigError, RequestRefusedError
from broker_core.message.data_version import DataVersion
from broker_core.namesrv.addresses import PORT_MIN, check_address
from broker_core.namesrv.identity import BROKER_ID_MAX, BrokerIdentity
from broker_core.namesrv.kv_configs import ORDER_TOPIC_CONFIG
from broker_core.protocol import java_json
from broker_core.protocol.bodies.registration import (
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
    body_crc32,
    decode_steps,
    inflate,
    inflated_steps,
)
from broker_core.protocol.bodies.route import MASTER_ID
from broker_core.protocol.bodies.tables import KVTable, TopicList
from broker_core.protocol.codes import V3_0_11, V4_9_4, RequestCode, ResponseCode
from broker_core.protocol.headers.fields import boolean, int32, int64, text
from broker_core.protocol.signature import ACCESS_KEY
from broker_core.steps import run_to_end

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping

    from broker_core.namesrv.kv_configs import KvConfigs
    from broker_core.namesrv.routes import RouteTable
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.remoting.dispatch import Handler

    Answer = RemotingCommand | Awaitable[RemotingCommand]

logger = logging.getLogger(__name__)

SUGGESTION = "\nSee {} for further details."
NO_ROUTE_URL = "http://rocketmq.apache.org/docs/faq/"
NOT_LISTED = "disable"
"""5.3.3's remark when a switch forbids a list."""
CHANGED_AT_ONCE = 2_000
"""For a broker with more topics, a permission change is spread over several turns."""
JSON_BYTES_MAX = 8 * 1024 * 1024
"""Limit of a registration, about 45,000 topics. All parts except the topics are read in one step.
"""
READ_AT_ONCE_BYTES = 64 * 1024
COMPRESSED_AT_ONCE_BYTES = 1024
"""Longer registrations are read in several turns; a compressed one can inflate a thousandfold."""
PATH_KEYS = ("configStorePath", "kvConfigPath")
PATHS_REFUSED = "Can not update config path"
"""RocketMQ's remark for PATH_KEYS."""


class NameServerProcessor:
    """Serves the codes of the name server. Event loop only."""

    def __init__(
        self,
        routes: RouteTable,
        kv_configs: KvConfigs,
        config: NamesrvConfig,
        shown: Mapping[str, str],
        keep: Callable[[Mapping[str, str]], None],
        is_proven: Callable[[RemotingCommand, Connection], bool] | None = None,
    ) -> None:
        """Create a processor; `shown` are additional keys of GET_NAMESRV_CONFIG.

        `shown` contains no file paths and no secrets. `keep` writes changed keys to the
        configuration
        file. `is_proven` returns whether a request is signed by an account that may register any
        broker.
        """
        self._routes = routes
        self._kv_configs = kv_configs
        self._config = config
        self._shown = shown
        self._keep = keep
        self._is_proven = is_proven or _unproven
        self._one_at_a_time = asyncio.Lock()

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by code."""
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
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.get_all_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._topic_list(routes.unit_topics),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._topic_list(routes.unit_sub_topics),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._topic_list(
                routes.unit_sub_ununit_topics
            ),
            RequestCode.GET_TOPICS_BY_CLUSTER: self.get_topics_by_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.get_system_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update_config,
            RequestCode.GET_NAMESRV_CONFIG: self.get_config,
        }

    def put_kv_config(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """PUT_KV_CONFIG. Answers SUCCESS, or SYSTEM_ERROR if the entry can't be stored."""
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
        """DELETE_KV_CONFIG. Answers SUCCESS, also for an unknown entry."""
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

    def register_broker(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand | None]:
        """REGISTER_BROKER. Answers SUCCESS with the ordered topics, SYSTEM_ERROR or NO_PERMISSION.

        A slave's answer also contains its master's two addresses: for clients and for replication.
        """
        fields = request.ext_fields
        identity = _identity(fields)
        is_proven = self._is_proven(request, connection)
        _check_addresses([identity.broker_addr], is_proven=is_proven)
        if identity.ha_server_addr:
            _check_addresses([identity.ha_server_addr], is_proven=is_proven)
        is_compressed = _is_compressed(request)
        if not is_compressed and len(request.body) > JSON_BYTES_MAX:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"the registration has {len(request.body)} bytes, more than {JSON_BYTES_MAX}; set "
                "compressedRegister=true in the broker's configuration",
            )
        most = COMPRESSED_AT_ONCE_BYTES if is_compressed else READ_AT_ONCE_BYTES
        if len(request.body) > most and request.version >= V3_0_11:
            connection.serve_alone()
            return self._register_later(request, connection, identity, is_proven=is_proven)
        _check_crc32(request)
        body = _registration(request, is_compressed=is_compressed)
        steps = self._register(request, connection, identity, body, is_proven=is_proven)
        return run_to_end(steps)

    async def _register_later(
        self,
        request: RemotingCommand,
        connection: Connection,
        identity: BrokerIdentity,
        *,
        is_proven: bool,
    ) -> RemotingCommand | None:
        """Process a long registration in several turns, one registration at a time."""
        async with self._one_at_a_time:
            await asyncio.to_thread(_check_crc32, request)
            try:
                if _is_compressed(request):
                    read = inflated_steps(await asyncio.to_thread(inflate, request.body))
                else:
                    read = decode_steps(request.body)
                body = await connection.run(read)
            except ValueError as error:
                raise _unreadable(error) from error
            if not connection.is_open:
                # A broker registered now would never be removed, because its connection has already
                # closed.
                return None
            return await connection.run(
                self._register(request, connection, identity, body, is_proven=is_proven)
            )

    def _register(
        self,
        request: RemotingCommand,
        connection: Connection,
        identity: BrokerIdentity,
        body: RegisterBrokerBody,
        *,
        is_proven: bool,
    ) -> Generator[None, None, RemotingCommand]:
        _check_addresses(body.filter_server_list, is_proven=is_proven)
        result = yield from self._routes.register_steps(
            identity,
            body.topic_config_serialize_wrapper,
            body.filter_server_list,
            connection,
            is_proven=is_proven,
        )
        answer_fields = {}
        if result.master_addr:
            answer_fields["haServerAddr"] = result.ha_server_addr
            answer_fields["masterAddr"] = result.master_addr
        order_topics = self.order_topics()
        return request.answer(
            ResponseCode.SUCCESS,
            None,
            answer_fields,
            KVTable(table=order_topics).encode() if order_topics else b"",
        )

    def order_topics(self) -> dict[str, str]:
        """Return the table of ORDER_TOPIC_CONFIG, empty unless the configuration shares it."""
        if not self._config.return_order_topic_config_to_broker:
            return {}
        return self._kv_configs.namespace(ORDER_TOPIC_CONFIG)

    def unregister_broker(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """UNREGISTER_BROKER. Answers SUCCESS, also for an unknown broker, or NO_PERMISSION.

        Differs: RocketMQ accepts it from any client.
        """
        is_proven = self._is_proven(request, connection)
        self._routes.unregister(_identity(request.ext_fields), connection, is_proven=is_proven)
        return request.answer(ResponseCode.SUCCESS)

    def query_data_version(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """QUERY_DATA_VERSION. Answers SUCCESS with `changed`.

        A query for an unchanged version counts as a sign of life.
        """
        address = text(request.ext_fields, "brokerAddr")
        try:
            data_version = java_json.decode_request(request.body, DataVersion)
        except ValueError as error:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"the body is not a DataVersion: {error}"
            ) from error
        is_changed = self._routes.is_changed(address, data_version, connection)
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
        if self._config.order_message_enable:
            order_topic_conf = self._kv_configs.get(ORDER_TOPIC_CONFIG, topic)
            route = self._routes.route(topic, order_topic_conf)
            if route is not None:
                body = route.encode(is_standard=is_standard)
        return request.answer(ResponseCode.SUCCESS, body=body)

    def get_cluster_info(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_BROKER_CLUSTER_INFO. Answers SUCCESS with a ClusterInfo in fastjson's dialect."""
        return request.answer(ResponseCode.SUCCESS, body=self._routes.cluster_info().encode())

    def wipe_write_perm(self, request: RemotingCommand, connection: Connection) -> Answer:
        """WIPE_WRITE_PERM_OF_BROKER. Answers SUCCESS with `wipeTopicCount`."""
        return self._change_perm(
            request, connection, self._routes.wipe_write_perm, "wipeTopicCount"
        )

    def add_write_perm(self, request: RemotingCommand, connection: Connection) -> Answer:
        """ADD_WRITE_PERM_OF_BROKER. Answers SUCCESS with `addTopicCount`."""
        return self._change_perm(request, connection, self._routes.add_write_perm, "addTopicCount")

    def _change_perm(
        self,
        request: RemotingCommand,
        connection: Connection,
        change: Callable[[str], Generator[None, None, int]],
        counted: str,
    ) -> Answer:
        broker_name = text(request.ext_fields, "brokerName")
        steps = change(broker_name)
        if self._routes.topic_nums_of(broker_name) > CHANGED_AT_ONCE:
            return _answer_count(request, counted, connection.run_alone(steps))
        return request.answer(ResponseCode.SUCCESS, None, {counted: str(run_to_end(steps))})

    def get_all_topics(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_ALL_TOPIC_LIST_FROM_NAMESERVER. Answers SUCCESS with a TopicList, or SYSTEM_ERROR."""
        _require(is_enabled=self._config.enable_all_topic_list)
        topics = TopicList(topic_list=self._routes.topics())
        return request.answer(ResponseCode.SUCCESS, body=topics.encode())

    def get_topics_by_cluster(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_TOPICS_BY_CLUSTER. Answers SUCCESS with a TopicList, or SYSTEM_ERROR.

        The list of an unknown cluster is empty.
        """
        _require(is_enabled=self._config.enable_topic_list)
        topics = self._routes.topics_of_cluster(text(request.ext_fields, "cluster"))
        return request.answer(ResponseCode.SUCCESS, body=TopicList(topic_list=topics).encode())

    def get_system_topics(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_SYSTEM_TOPIC_LIST_FROM_NS. Answers SUCCESS with names and the address of a broker.

        That broker lists the system topics that the name server doesn't have.
        """
        topics, broker_addr = self._routes.system_topics()
        topic_list = TopicList(broker_addr=broker_addr, topic_list=topics)
        return request.answer(ResponseCode.SUCCESS, body=topic_list.encode())

    def delete_topic(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """DELETE_TOPIC_IN_NAMESRV. Answers SUCCESS, also for an unknown topic."""
        fields = request.ext_fields
        self._routes.delete_topic(text(fields, "topic"), fields.get("clusterName") or None)
        return request.answer(ResponseCode.SUCCESS)

    def update_config(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """UPDATE_NAMESRV_CONFIG: change all of the given keys of NamesrvConfig, or none.

        Answers SUCCESS; NO_PERMISSION for any other key; SYSTEM_ERROR for a bad value.
        Differs: RocketMQ lets anyone who connects change any key but two, paths included.
        """
        table = parse_properties(request.body.decode("utf-8", errors="replace"))
        shown = self._shown_table()
        wanted = {key: value for key, value in table.items() if shown.get(key) != value}
        try:
            changed = update_namesrv(self._config, wanted)
        except ConfigError as error:
            if error.expected:
                raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, str(error)) from error
            remark = (
                f"{error.key} can't be changed over the network; change it in the name server's "
                "configuration file"
            )
            if not is_known(error.key):
                remark = unknown_key(error.key)
            if error.key in PATH_KEYS:
                remark = PATHS_REFUSED
            raise RequestRefusedError(ResponseCode.NO_PERMISSION, remark) from error
        if changed:
            logger.warning(
                "name server configuration changed changes=%s access_key=%s peer=%s",
                " ".join(f"{key}={shown.get(key)}->{wanted[key]}" for key in changed),
                request.ext_fields.get(ACCESS_KEY),
                connection.remote_address,
            )
            self._keep({key: wanted[key] for key in changed})
        return request.answer(ResponseCode.SUCCESS)

    def get_config(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_NAMESRV_CONFIG. Answers SUCCESS with properties, without paths and secrets."""
        lines = [f"{key}={value}\n" for key, value in sorted(self._shown_table().items())]
        return request.answer(ResponseCode.SUCCESS, body="".join(lines).encode())

    def _shown_table(self) -> dict[str, str]:
        own = {
            key.name: text_of(key, getattr(self._config, key.attribute))
            for key in SECTIONS[NamesrvConfig]
        }
        return {**self._shown, **own}

    def _topic_list(self, topics: Callable[[], list[str]]) -> Handler:
        def handler(request: RemotingCommand, _: Connection) -> RemotingCommand:
            _require(is_enabled=self._config.enable_topic_list)
            body = TopicList(topic_list=topics()).encode()
            return request.answer(ResponseCode.SUCCESS, body=body)

        return handler


def _require(*, is_enabled: bool) -> None:
    if not is_enabled:
        raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, NOT_LISTED)


def _identity(fields: Mapping[str, str]) -> BrokerIdentity:
    return BrokerIdentity(
        cluster_name=text(fields, "clusterName"),
        broker_name=text(fields, "brokerName"),
        broker_id=int64(fields, "brokerId", low=MASTER_ID, high=BROKER_ID_MAX),
        broker_addr=text(fields, "brokerAddr"),
        ha_server_addr=fields.get("haServerAddr", ""),
        epoch=int64(fields, "epoch", 0, low=0),
    )


def _check_addresses(addresses: Iterable[str], *, is_proven: bool) -> None:
    for address in addresses:
        try:
            check_address(address, 1 if is_proven else PORT_MIN)
        except ValueError as error:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"clients cannot connect to {address[:100]!r}: {error}",
            ) from error


def _unproven(_: RemotingCommand, __: Connection) -> bool:
    """Return False: without accounts, no request proves its sender."""
    return False


async def _answer_count(
    request: RemotingCommand, name: str, count: Awaitable[int]
) -> RemotingCommand:
    return request.answer(ResponseCode.SUCCESS, None, {name: str(await count)})


def _is_compressed(request: RemotingCommand) -> bool:
    return request.version >= V3_0_11 and boolean(request.ext_fields, "compressed")


def _check_crc32(request: RemotingCommand) -> None:
    announced_crc32 = int32(request.ext_fields, "bodyCrc32", 0)
    if announced_crc32 != 0 and announced_crc32 != body_crc32(request.body):
        raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, "crc32 not match")


def _unreadable(error: ValueError) -> RequestRefusedError:
    return RequestRefusedError(
        ResponseCode.SYSTEM_ERROR, f"the registration cannot be read: {error}"
    )


def _registration(request: RemotingCommand, *, is_compressed: bool) -> RegisterBrokerBody:
    if not request.body:
        return RegisterBrokerBody()
    try:
        if request.version < V3_0_11:
            topics = TopicConfigSerializeWrapper.decode(request.body)
            return RegisterBrokerBody(topic_config_serialize_wrapper=topics)
        return RegisterBrokerBody.decode(request.body, is_compressed=is_compressed)
    except ValueError as error:
        raise _unreadable(error) from error
