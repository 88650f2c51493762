"""The composition root: builds the parts, wires them, starts in order, stops in reverse.

The only module that knows all services. Order of start: what recovers, then what serves, then what
announces; a client that finds us in a name server finds us answering.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.access.acl_files import AclFiles
from broker_core.access.authorizer import Authorizer
from broker_core.clients.consumers import Consumers
from broker_core.clients.housekeeping import ClientHousekeeping
from broker_core.clients.producers import Producers
from broker_core.clients.rebalance_locks import RebalanceLocks
from broker_core.clock import SteadyClock, SystemClock, thread_cpu_seconds
from broker_core.config import PLAIN_ACL, edited, names_of, parse_addresses
from broker_core.delay.delay_offsets import DelayOffsets
from broker_core.delay.levels import DelayLevels
from broker_core.delay.schedule import ScheduleService
from broker_core.delivery.filter_bit_maps import FilterBitMaps
from broker_core.delivery.hold import PullHold
from broker_core.delivery.slow_consumers import SlowConsumers
from broker_core.delivery.sql_filter import compile_filter
from broker_core.errors import BrokerError, ConfigError, StoreError
from broker_core.extensions.loading import load as load_extensions
from broker_core.extensions.plugged_store import PluggedMessageStore
from broker_core.formats.bloom_filter import BloomFilter
from broker_core.formats.paths import StorePaths
from broker_core.message.ids import host_bytes, offset_msg_id
from broker_core.message.names import (
    PROPERTY_PRODUCER_GROUP,
    RMQ_SYS_SCHEDULE_TOPIC,
    SCHEDULE_CONSUMER_GROUP,
)
from broker_core.metadata.consumer_filters import ConsumerFilters
from broker_core.metadata.consumer_offsets import ConsumerOffsets
from broker_core.metadata.document import Document
from broker_core.metadata.subscription_groups import SubscriptionGroups
from broker_core.metadata.topics import Topics
from broker_core.namesrv.address_server import AddressServer
from broker_core.namesrv.kv_configs import ORDER_TOPIC_CONFIG
from broker_core.namesrv.namesrv import NameServer
from broker_core.namesrv.registration import BrokerRegistration
from broker_core.namesrv.routes import BrokerIdentity
from broker_core.processors import registry
from broker_core.processors.admin.access import AccessAdmin
from broker_core.processors.admin.broker import BrokerAdmin
from broker_core.processors.admin.clients import ClientsAdmin
from broker_core.processors.admin.connections import ConnectionsAdmin
from broker_core.processors.admin.groups import GroupsAdmin
from broker_core.processors.admin.messages import MessagesAdmin
from broker_core.processors.admin.topics import TopicsAdmin
from broker_core.processors.guard import guarded
from broker_core.processors.heartbeat import HeartbeatProcessor
from broker_core.processors.hooked import (
    BrokerFacts,
    ConsumeHooks,
    HookedPullProcessor,
    RequestHooks,
    SendHooks,
)
from broker_core.processors.listened import ListenedTransactions
from broker_core.processors.offsets import OffsetsProcessor
from broker_core.processors.pull import PullProcessor
from broker_core.processors.query import QueryProcessor
from broker_core.processors.reply import ReplyProcessor
from broker_core.processors.send import SendProcessor
from broker_core.processors.send_back import SendBackProcessor
from broker_core.processors.trace import TraceProcessor
from broker_core.processors.transaction import ProducerInquiry, TransactionProcessor
from broker_core.processors.validators import AccessValidators
from broker_core.remoting.client import RemotingClient
from broker_core.remoting.limits import RemotingLimits
from broker_core.remoting.overload import (
    HEARTBEAT_CODES,
    PULL_CODES,
    SEND_CODES,
    TRANSACTION_CODES,
    Overload,
)
from broker_core.remoting.server import RemotingServer
from broker_core.remoting.tls import TlsGate, client_context
from broker_core.service import Service
from broker_core.stats.counters import BrokerStats
from broker_core.stats.water_mark import WaterMark
from broker_core.storage import FileStorage
from broker_core.store.message_store import MessageStore
from broker_core.store.self_check import SelfCheck
from broker_core.trace.tracer import Tracer
from broker_core.transaction.check import CheckSettings, TransactionCheck
from broker_core.transaction.resolve import Transactions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker_core.clock import Clock
    from broker_core.config import Configuration
    from broker_core.message.message import MessageExt
    from broker_core.processors.guard import Gate
    from broker_core.remoting.connection import Connection
    from broker_core.remoting.dispatch import Handler
    from broker_core.storage import Storage
    from broker_core.store.results import PutMessageResult
    from broker_core.transaction.check import Ask

logger = logging.getLogger(__name__)

VIP_PORT_STEP = 2
"""The VIP port is this far below the listening port."""
TRANSACTION_QUEUE_NUMS = 1
HA_PORT_STEP = 1
"""The replication port is this far above it; it is announced, as the original does."""
PERSIST_FILTERS_S = 10.0
CONFIG_DIRECTORY = "config"
ACL_DIRECTORY = "conf"
ACL_FILE = "plain_acl.yml"
KV_CONFIG_FILE = "kvConfig.json"


class Broker(Service):
    """Everything between `load` and `shutdown`. Event loop only, but for `load`."""

    def __init__(
        self,
        configuration: Configuration,
        clock: Clock | None = None,
        storage: Storage | None = None,
    ) -> None:
        super().__init__()
        config = configuration.broker
        bloom = BloomFilter(
            config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter
        )
        store_config = replace(configuration.store, bit_map_length_consume_queue_ext=bloom.bit_num)
        configuration = replace(configuration, store=store_config)
        self.configuration = configuration
        self._clock = clock or SystemClock()
        self._storage = storage or FileStorage()
        self._config_directory = Path(configuration.store.store_path_root_dir) / CONFIG_DIRECTORY
        self.listen_port = configuration.server.listen_port
        store_host = host_bytes(config.broker_ip1, self.listen_port)
        self._store_host = store_host
        self.extensions = load_extensions(configuration, self.address)
        steady = SteadyClock(self._clock)
        self._levels = DelayLevels.of(configuration.store.message_delay_level)

        self.topics = Topics(
            config, self._levels.max_level, self._clock, self._document("topics.json")
        )
        self.groups = SubscriptionGroups(
            config, self._clock, self._document("subscriptionGroup.json")
        )
        self.offsets = ConsumerOffsets(self._document("consumerOffset.json"))
        self.filters = ConsumerFilters(
            compile_filter,
            bloom,
            lambda: config.filter_data_clean_time_span,
            self._clock,
            self._document("consumerFilter.json"),
        )
        bit_maps = FilterBitMaps(self.filters.of_topic, lambda: config.enable_calc_filter_bit_map)
        store_kind = PluggedMessageStore if self.extensions.store_plug_ins else MessageStore
        self.store = store_kind(
            configuration.store, self._clock, self._storage, store_host, bit_maps.bit_map
        )
        self._plug(self.store)
        self.filters.newest_stored_ms = lambda: self.store.newest_store_timestamp
        self.schedule = ScheduleService(
            self._levels,
            self.store,
            DelayOffsets(self._document("delayOffset.json")),
            self._clock,
            steady,
            flush_interval_ms=configuration.store.flush_delay_offset_interval,
        )
        self.transactions = Transactions(
            self.store,
            self.offsets,
            lambda topic: self.topics.create_retry(topic, TRANSACTION_QUEUE_NUMS),
            store_host,
            steady,
            is_sync_flush=configuration.store.flush_disk_type == "SYNC_FLUSH",
        )
        self.stats = BrokerStats(
            config.broker_cluster_name,
            self._clock,
            lambda: self.store.put_total,
            is_detailed=config.enable_detail_stat,
        )
        self.tracer = Tracer(self._clock)
        self.hold = PullHold(self._clock)
        self.consumers = Consumers()
        self.producers = Producers()
        self.housekeeping = ClientHousekeeping(self.consumers, self.producers, self._clock)
        inquiry: Ask = ProducerInquiry(store_host, self.producers).ask
        listened = None
        if self.extensions.transaction_listener is not None:
            listened = ListenedTransactions(
                self.extensions.transaction_listener, self.extensions.failures, inquiry
            )
            inquiry = listened.ask
        self.transaction_check = TransactionCheck(
            CheckSettings(
                timeout_ms=config.transaction_time_out,
                interval_ms=config.transaction_check_interval,
                check_max=config.transaction_check_max,
                reserved_ms=configuration.store.file_reserved_time * 3_600_000,
            ),
            self.transactions,
            inquiry,
            self._clock,
            steady,
        )
        if listened is not None:
            self.transaction_check.resolve_discard = listened.resolve_discard
        self.slow_consumers = SlowConsumers(
            config.consumer_fallbehind_threshold,
            self.store,
            self.groups,
            self._clock,
        )
        self.water_mark = WaterMark(
            self._clock,
            lambda: self.store.dispatch_behind_bytes,
            # Replication is not served: no slave has any of it, and a master says so by this.
            lambda: self.store.max_commit_log_offset,
        )
        self.self_check = SelfCheck(
            StorePaths.of(store_config.store_path_root_dir, store_config.store_path_commit_log),
            store_config.mapped_file_size_commit_log,
            store_config.mapped_file_size_consume_queue,
            self._clock,
            self._storage,
        )
        # Two ports, and the embedded name server's: one certificate, one mode.
        self._tls = TlsGate(configuration.tls)
        self.acl = self._acl_files()
        self.gate = self._gate()
        self.name_server = self._name_server()
        self.registration = self._registration()
        self.address_server = (
            AddressServer(
                config.namesrv_address_server, self._clock, self.registration.set_name_servers
            )
            if config.fetch_namesrv_addr_by_address_server
            else None
        )

        processors = self._processors(store_host)
        self.server = self._remoting_server("broker", registry.handlers(processors))
        self.fast_server = self._remoting_server(
            "broker's VIP port", registry.fast_handlers(processors)
        )
        self.water_mark.waiting = lambda: {
            "held_pulls": len(self.hold),
            "connections": len(self.server.connections) + len(self.fast_server.connections),
        }
        self.overload = Overload(
            self._clock,
            (self.server, self.fast_server),
            self._waits,
            thread_cpu_seconds,
            self.stats.put_latency.take_longest_ms,
            lambda: configuration.store.os_page_cache_busy_time_out_mills,
            lambda: self.store.is_transient_store_pool_deficient,
        )

        self.store.on_arrival = self.hold.on_arrival
        self.schedule.on_delivered = self._on_delivered
        self.schedule.on_held = lambda queue_id, result: self.stats.held(
            RMQ_SYS_SCHEDULE_TOPIC, queue_id, result.wrote_size
        )
        self.transactions.on_committed = self._trace_stored
        if config.disable_consume_if_consumer_read_slowly:
            processors.pull.on_pulled = self.slow_consumers.on_pulled
        self.consumers.on_change = processors.heartbeat.notify_consumer_ids_changed
        self.consumers.on_gone = self.filters.unregister
        self.server.on_connection_lost = self._on_connection_lost
        self.fast_server.on_connection_lost = self._on_connection_lost
        self.registration.on_order_topics = self.topics.set_order
        processors.broker.more_info = self.extensions.runtime_info
        processors.broker.on_change = lambda changed: self._configuration_changed(
            processors.send, changed
        )

    def load(self) -> None:
        """Take the store directory, recover it, read the configuration files.

        Raises:
            StoreError: one sentence for the operator.
        """
        try:
            self._load()
        except BrokerError:
            self.extensions.close()
            raise

    def _load(self) -> None:
        try:
            # Recovery makes again the bitmaps that are missing, so it must know the filters.
            self.store.load(self.filters.load)
            self._storage.make_directory(self._config_directory)
        except OSError as error:
            root = self.configuration.store.store_path_root_dir
            raise StoreError(
                f"the store directory {root} cannot be used: {error.strerror}"
            ) from error
        self.topics.load()
        self.groups.load()
        self.offsets.load()
        self.schedule.load()
        self.transactions.load()
        if self.acl is not None:
            self.acl.load()

    async def start(self) -> None:
        """Serve.

        Raises:
            RemotingError: a port cannot be listened on; `shutdown` stops what was started.
        """
        config = self.configuration.broker
        if self.name_server is not None:
            await self.name_server.start()
        await self.store.start()
        self.stats.start()
        if self.acl is not None:
            self.acl.start()
        self.housekeeping.start()
        self.schedule.start()
        self.transaction_check.start()
        if config.disable_consume_if_consumer_read_slowly:
            self.slow_consumers.start()
        await self.server.start(config.bind_address, self.listen_port)
        await self.fast_server.start(config.bind_address, self.listen_port - VIP_PORT_STEP)
        self.spawn(self._persist_offsets_forever(), name="consumer-offsets")
        self.spawn(self._persist_filters_forever(), name="consumer-filters")
        self.topics.on_change = self.registration.topic_changed
        self.water_mark.start()
        self.self_check.start()
        self.overload.start()
        if self.address_server is not None:
            await self.address_server.start()
        await self.registration.start()

    async def shutdown(self) -> None:
        """Stop announcing, then serving, then storing; everything held is answered or persisted."""
        self.overload.shutdown()
        await self.water_mark.shutdown()
        await self.self_check.shutdown()
        if self.address_server is not None:
            await self.address_server.shutdown()
        await self.registration.shutdown()
        self.hold.shutdown()
        await self.tracer.shutdown()
        await self.fast_server.shutdown()
        await self.server.shutdown()
        await self.housekeeping.shutdown()
        await self.slow_consumers.shutdown()
        await self.schedule.shutdown()
        await self.transaction_check.shutdown()
        await self.stats.shutdown()
        if self.acl is not None:
            await self.acl.shutdown()
        await super().shutdown()
        self.offsets.persist()
        self.filters.persist()
        await self.store.shutdown()
        if self.name_server is not None:
            await self.name_server.shutdown()
        self.extensions.close()

    def _document(self, name: str) -> Document:
        return Document(self._storage, self._config_directory / name)

    def announcement(self) -> str:
        """Return the sentence of a start that went well, in the original's words."""
        config = self.configuration.broker
        name_servers = parse_addresses(config.namesrv_addr)
        if self.name_server is not None:
            name_servers.insert(0, f"{config.broker_ip1}:{self.name_server.port}")
        return (
            f"The broker[{config.broker_name}, {self.address}] boot success. "
            f"serializeType=JSON and name server is {';'.join(name_servers)}"
        )

    @property
    def address(self) -> str:
        """The address that clients are told."""
        return f"{self.configuration.broker.broker_ip1}:{self.listen_port}"

    def _acl_files(self) -> AclFiles | None:
        config = self.configuration.broker
        if not config.acl_enable or PLAIN_ACL not in names_of(config.access_validators):
            return None
        root = Path(self.configuration.store.store_path_root_dir)
        path = Path(config.acl_file or root.parent / ACL_DIRECTORY / ACL_FILE)
        return AclFiles(path.expanduser().absolute(), self._clock, self._storage)

    def _gate(self) -> Gate | None:
        """Return who lets requests pass; None for everybody."""
        config, extensions = self.configuration.broker, self.extensions
        plain = Authorizer(self.acl, self._clock) if self.acl is not None else None
        if not config.acl_enable or names_of(config.access_validators) == [PLAIN_ACL]:
            return plain
        return AccessValidators(extensions.access_validators, plain, extensions.failures)

    def _plug(self, store: MessageStore) -> None:
        if isinstance(store, PluggedMessageStore):
            try:
                store.plug(self.extensions.store_plug_ins, self.extensions.failures)
            except ConfigError:
                self.extensions.close()
                raise

    def _hooked(self, handlers: dict[int, Handler]) -> dict[int, Handler]:
        """Return the table with what surrounds its handlers, the first check outermost."""
        extensions, facts = self.extensions, self._facts()
        if extensions.send_message_hooks:
            hooks = extensions.send_message_hooks
            handlers = SendHooks(hooks, extensions.failures, facts, self._clock).around(handlers)
        if extensions.consume_message_hooks:
            handlers = self._consume_hooks().around(handlers)
        if extensions.rpc_hooks:
            handlers = RequestHooks(extensions.rpc_hooks, extensions.failures).around(handlers)
        return handlers if self.gate is None else guarded(handlers, self.gate)

    def _consume_hooks(self) -> ConsumeHooks:
        extensions = self.extensions
        return ConsumeHooks(extensions.consume_message_hooks, extensions.failures, self._facts())

    def _facts(self) -> BrokerFacts:
        return BrokerFacts(self.address, self.configuration.broker.region_id)

    def _name_server(self) -> NameServer | None:
        config = self.configuration.broker
        if not config.embedded_namesrv:
            return None
        path = Path(config.kv_config_path or self._config_directory / KV_CONFIG_FILE)
        return NameServer(
            config.bind_address,
            config.namesrv_listen_port,
            self._clock,
            self._storage,
            path,
            limits=limits_of(self.configuration),
            tls=self._tls,
            is_proxied=self.configuration.server.ha_proxy_protocol_enable,
            is_order_message_enabled=config.order_message_enable,
        )

    def _remoting_server(self, name: str, handlers: dict[int, Handler]) -> RemotingServer:
        registry.time_requests(handlers, self.stats.put_latency, self.stats.get_latency)
        server = RemotingServer(
            name,
            self._hooked(handlers),
            self._clock,
            limits_of(self.configuration),
            self._tls,
            is_proxied=self.configuration.server.ha_proxy_protocol_enable,
        )
        server.watch_turns(self.stats.put_latency.end_turn)
        return server

    def _waits(self) -> list[tuple[Sequence[int], float]]:
        """Return how long requests may wait; nothing while that rule is off."""
        config = self.configuration.broker
        if not config.broker_fast_failure_enable:
            return []
        return [
            (SEND_CODES, config.wait_time_mills_in_send_queue),
            (PULL_CODES, config.wait_time_mills_in_pull_queue),
            (HEARTBEAT_CODES, config.wait_time_mills_in_heartbeat_queue),
            (TRANSACTION_CODES, config.wait_time_mills_in_transaction_queue),
        ]

    def _configuration_changed(self, send: SendProcessor, changed: dict[str, str]) -> None:
        """Have changed keys take effect where they are kept, and stay after a restart."""
        send.reconfigure(self.configuration.store.max_message_size)
        if "brokerPermission" in changed:
            self.topics.touch()
            self.registration.announce()
        if self.configuration.path is None:
            return
        path = Path(self.configuration.path)
        try:
            text = (self._storage.read(path) or b"").decode("utf-8", errors="replace")
            self._storage.write_atomically(path, edited(text, changed).encode(), keep_backup=True)
        except OSError as error:
            logger.warning("%s is not changed, which a restart will forget: %s", path, error)

    def _registration(self) -> BrokerRegistration:
        config = self.configuration.broker
        identity = BrokerIdentity(
            cluster_name=config.broker_cluster_name,
            broker_name=config.broker_name,
            broker_id=config.broker_id,
            broker_addr=self.address,
            ha_server_addr=f"{config.broker_ip2}:{self.listen_port + HA_PORT_STEP}",
        )
        has_outside = config.namesrv_addr or config.fetch_namesrv_addr_by_address_server
        kv_configs = self.name_server.kv_configs if self.name_server is not None else None
        return BrokerRegistration(
            identity,
            lambda: (self.topics.data_version, self.topics.table),
            self._clock,
            client=self._outer_client() if has_outside else None,
            name_servers=parse_addresses(config.namesrv_addr),
            routes=self.name_server.routes if self.name_server is not None else None,
            broker_permission=lambda: config.broker_permission,
            order_topics=(
                (lambda: kv_configs.namespace(ORDER_TOPIC_CONFIG)) if kv_configs else None
            ),
            period_s=lambda: config.register_name_server_period / 1000,
            timeout_s=config.register_broker_timeout_mills / 1000,
        )

    def _outer_client(self) -> RemotingClient:
        tls = self.configuration.tls
        return RemotingClient(tls=client_context(tls) if tls.use_tls else None)

    def _processors(self, store_host: bytes) -> registry.Processors:
        config, clock = self.configuration.broker, self._clock
        has_hooks = bool(self.extensions.consume_message_hooks)
        pull_kind = HookedPullProcessor if has_hooks else PullProcessor
        pull = pull_kind(
            config,
            store_host,
            self.topics,
            self.groups,
            self.offsets,
            self.filters,
            self.consumers,
            self.store,
            self.hold,
            self.stats,
            self.tracer,
            clock,
        )
        if isinstance(pull, HookedPullProcessor):
            pull.hooks = self._consume_hooks()
        max_message_size = self.configuration.store.max_message_size
        send = SendProcessor(
            config,
            store_host,
            max_message_size,
            self.topics,
            self.groups,
            self.store,
            self._levels,
            self.schedule,
            self.transactions,
            self.stats,
            self.tracer,
            clock,
        )
        return registry.Processors(
            send=send,
            send_back=SendBackProcessor(
                config,
                self.topics,
                self.groups,
                self.store,
                self._levels,
                self.schedule,
                self.stats,
            ),
            transaction=TransactionProcessor(
                store_host, max_message_size, self.transactions, self.store, self.stats
            ),
            reply=ReplyProcessor(
                config, store_host, send, self.producers, self.store, self.stats, clock
            ),
            pull=pull,
            heartbeat=HeartbeatProcessor(
                config,
                self.topics,
                self.groups,
                self.filters,
                self.consumers,
                self.producers,
                RebalanceLocks(clock),
                clock,
            ),
            offsets=OffsetsProcessor(self.offsets, pull, self.store),
            query=QueryProcessor(self.configuration.store, self.store),
            trace=TraceProcessor(self.tracer),
            access=AccessAdmin(config, self.address, self.acl),
            topics=TopicsAdmin(
                config,
                self.topics,
                self.offsets,
                self.consumers,
                self.store,
                self.stats,
                self.registration.announced,
            ),
            groups=GroupsAdmin(
                config,
                self.listen_port,
                self.topics,
                self.groups,
                self.offsets,
                self.consumers,
                self.store,
                self.stats,
                clock,
            ),
            connections=ConnectionsAdmin(self.consumers, self.producers),
            clients=ClientsAdmin(config.broker_name, self.consumers, self.store),
            messages=MessagesAdmin(self.topics, self.consumers, self.filters, self.store),
            broker=BrokerAdmin(
                self.configuration,
                self.topics,
                self.store,
                self.schedule,
                self.slow_consumers,
                self.stats,
                lambda: self.water_mark.late_ms,
                clock,
            ),
        )

    def _on_delivered(
        self, message: MessageExt, topic: str, queue_id: int, result: PutMessageResult
    ) -> None:
        if self.configuration.store.enable_schedule_message_stats:
            self.stats.delivered(
                SCHEDULE_CONSUMER_GROUP,
                RMQ_SYS_SCHEDULE_TOPIC,
                message.queue_id,
                topic,
                result.wrote_size,
            )
        self._trace_stored(message, topic, queue_id, result)

    def _trace_stored(
        self, message: MessageExt, topic: str, queue_id: int, result: PutMessageResult
    ) -> None:
        """Tell watchers of a message that comes to its topic after it was held."""
        if self.tracer.watching:
            self.tracer.emit(
                "stored",
                topic,
                queue_id,
                result.queue_offset,
                commit_log_offset=str(result.commit_log_offset),
                store_size=result.wrote_size,
                body_size=len(message.body),
                tags=message.tags,
                keys=message.keys,
                uniq_key=message.uniq_key,
                offset_msg_id=offset_msg_id(self._store_host, result.commit_log_offset),
                producer_group=message.properties.get(PROPERTY_PRODUCER_GROUP),
                client=message.born_host,
                latency_us=max(0, result.store_timestamp - message.born_timestamp) * 1000,
            )

    def _on_connection_lost(self, connection: Connection) -> None:
        self.hold.close(connection)
        self.tracer.unwatch(connection)
        self.housekeeping.on_connection_lost(connection)

    async def _persist_offsets_forever(self) -> None:
        while True:
            await self._clock.sleep(self.configuration.broker.flush_consumer_offset_interval / 1000)
            await self.offsets.persist_in_thread()

    async def _persist_filters_forever(self) -> None:
        while True:
            await self._clock.sleep(PERSIST_FILTERS_S)
            self.filters.persist()


def limits_of(configuration: Configuration) -> RemotingLimits:
    """Return what a server's peers are bounded by."""
    server = configuration.server
    return RemotingLimits(
        connections_max=server.server_connections_max,
        connections_per_host_max=server.server_connections_per_host_max,
        idle_s=server.server_channel_max_idle_time_seconds,
    )
