"""The broker's configuration: RocketMQ's keys, units and defaults in frozen dataclasses.

A configuration file is Java properties text (`key=value`). Field names are the keys in snake_case;
a key of the original that steers something this broker does not have (a thread pool, a lock) stands
in `INERT` and is accepted without effect. A value that would promise what is not served is refused.

Source: MessageStoreConfig, BrokerConfig, NettyServerConfig (4.9.7).
"""

from __future__ import annotations

import difflib
import re
import socket
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_type_hints
from urllib.parse import urlsplit

from broker_core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

DEFAULT_MESSAGE_DELAY_LEVEL = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
CONFIG_BYTES_MAX = 1 << 20
CQ_UNIT_BYTES = 20
TLS_CONFIG_FILE = "/etc/rocketmq/tls.properties"
PLAIN_ACL = "plain_acl"
"""The name of RocketMQ's own access validator among accessValidators."""
EXTENSION_OPTION = "extension."
"""What an extension's own keys begin with: extension.NAME.KEY."""
HIDDEN = "******"
"""What is shown of a secret."""
CLOSE_ENOUGH = 0.6
"""How alike (difflib's ratio) an unknown key must be to a known one before we suggest it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """What the store obeys; milliseconds and bytes unless the name says otherwise."""

    store_path_root_dir: str = ""
    store_path_commit_log: str = ""
    mapped_file_size_commit_log: int = 1 << 30
    mapped_file_size_consume_queue: int = 6_000_000
    enable_consume_queue_ext: bool = False
    mapped_file_size_consume_queue_ext: int = 48 << 20
    bit_map_length_consume_queue_ext: int = 64
    """As in the original the broker sets this at its start, to what the Bloom filter needs."""
    flush_disk_type: Literal["ASYNC_FLUSH", "SYNC_FLUSH"] = "ASYNC_FLUSH"
    flush_interval_commit_log: int = 500
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval: int = 10_000
    flush_commit_log_timed: bool = True
    """Whether ASYNC_FLUSH waits for its interval also when there are least pages to flush."""
    transient_store_pool_enable: bool = False
    """Without effect with SYNC_FLUSH: see `is_transient_store_pool_enabled`."""
    transient_store_pool_size: int = 5
    """Buffers, each as long as a file of the log."""
    fast_fail_if_no_buffer_in_store_pool: bool = False
    commit_interval_commit_log: int = 200
    commit_commit_log_least_pages: int = 4
    commit_commit_log_thorough_interval: int = 200
    flush_interval_consume_queue: int = 1_000
    flush_consume_queue_least_pages: int = 2
    flush_consume_queue_thorough_interval: int = 60_000
    sync_flush_timeout: int = 5_000
    max_message_size: int = 4 << 20
    check_crc_on_recover: bool = field(default=True, metadata={"key": "checkCRCOnRecover"})
    max_transfer_bytes_on_message_in_memory: int = 262_144
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_disk: int = 65_536
    max_transfer_count_on_message_in_disk: int = 8
    access_message_in_memory_max_ratio: int = 40
    message_index_enable: bool = True
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000
    max_msgs_num_batch: int = 64
    default_query_max_num: int = 32
    file_reserved_time: int = 72
    """Hours."""
    delete_when: str = "04"
    disk_max_used_space_ratio: int = 75
    clean_file_forcibly_enable: bool = True
    clean_resource_interval: int = 10_000
    delete_commit_log_files_interval: int = 100
    delete_consume_queue_files_interval: int = 100
    warm_maped_file_enable: bool = False
    flush_least_pages_when_warm_maped_file: int = 4_096
    enabled_append_prop_crc: bool = field(default=False, metadata={"key": "enabledAppendPropCRC"})
    """Guard whole records by a property, as 5.x does."""
    os_page_cache_busy_time_out_mills: int = 1_000
    message_delay_level: str = DEFAULT_MESSAGE_DELAY_LEVEL
    flush_delay_offset_interval: int = 10_000
    enable_schedule_message_stats: bool = True

    @property
    def is_transient_store_pool_enabled(self) -> bool:
        """Whether messages wait in buffers: SYNC_FLUSH needs them in their file at once."""
        return self.transient_store_pool_enable and self.flush_disk_type == "ASYNC_FLUSH"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Who this broker is, what it allows, how often it does its rounds (milliseconds)."""

    namesrv_addr: str = ""
    fetch_namesrv_addr_by_address_server: bool = False
    broker_ip1: str = field(default="", metadata={"key": "brokerIP1"})
    broker_ip2: str = field(default="", metadata={"key": "brokerIP2"})
    broker_name: str = ""
    broker_cluster_name: str = "DefaultCluster"
    broker_id: int = 0
    broker_permission: int = 6
    default_topic_queue_nums: int = 8
    auto_create_topic_enable: bool = True
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    auto_create_subscription_group: bool = True
    msg_trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"
    trace_topic_enable: bool = False
    flush_consumer_offset_interval: int = 5_000
    long_polling_enable: bool = True
    short_polling_time_mills: int = 1_000
    notify_consumer_ids_changed_enable: bool = True
    region_id: str = "DefaultRegion"
    trace_on: bool = True
    register_broker_timeout_mills: int = 6_000
    register_name_server_period: int = 30_000
    start_accept_send_request_time_stamp: int = 0
    broker_fast_failure_enable: bool = True
    wait_time_mills_in_send_queue: int = 200
    wait_time_mills_in_pull_queue: int = 5_000
    wait_time_mills_in_heartbeat_queue: int = 31_000
    wait_time_mills_in_transaction_queue: int = 3_000
    reject_transaction_message: bool = False
    transaction_time_out: int = 6_000
    transaction_check_max: int = 15
    """Questions to the producers of a transaction."""
    transaction_check_interval: int = 60_000
    store_reply_message_enable: bool = True
    enable_detail_stat: bool = True
    order_message_enable: bool = False
    """A key of the name server: its routes tell the queues of ORDER_TOPIC_CONFIG."""
    disable_consume_if_consumer_read_slowly: bool = False
    consumer_fallbehind_threshold: int = 16 << 30
    """Bytes."""
    acl_enable: bool = False
    enable_property_filter: bool = False
    enable_calc_filter_bit_map: bool = False
    filter_support_retry: bool = False
    filter_data_clean_time_span: int = 24 * 3600 * 1000
    max_error_rate_of_bloom_filter: int = 20
    """Percent."""
    expect_consumer_num_use_filter: int = 32
    # Ours, beyond RocketMQ's keys.
    bind_address: str = "127.0.0.1"
    embedded_namesrv: bool = True
    namesrv_listen_port: int = 9876
    kv_config_path: str = ""
    namesrv_address_server: str = "http://jmenv.tbsite.net:8080/rocketmq/nsaddr"
    """Whom fetchNamesrvAddrByAddressServer asks; the original builds this of system properties."""
    acl_file: str = ""
    """plain_acl.yml; by default in conf/ beside the store directory."""
    # Names of extensions, in their order, separated by commas; the last key is the original's own.
    send_message_hooks: str = ""
    consume_message_hooks: str = ""
    rpc_hooks: str = ""
    access_validators: str = PLAIN_ACL
    transaction_listener: str = ""
    message_store_plug_in: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The remoting server's port and limits."""

    listen_port: int = 10911
    server_channel_max_idle_time_seconds: int = 120
    # Ours, beyond RocketMQ's keys.
    server_connections_max: int = 10_000
    server_connections_per_host_max: int = 1_000
    """Of one address; this machine's own are not counted, since tools and proxies run there."""
    ha_proxy_protocol_enable: bool = False
    """Whether each connection must begin with a PROXY header (versions 1, 2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """TLS on the same ports; the keys of tls.properties, which may stand in the file as well."""

    mode: Literal["disabled", "permissive", "enforcing"] = field(
        default="permissive", metadata={"key": "tls.server.mode"}
    )
    config_file: str = field(default=TLS_CONFIG_FILE, metadata={"key": "tls.config.file"})
    test_mode_enable: bool = field(default=True, metadata={"key": "tls.test.mode.enable"})
    """Serve a certificate made by ourselves, which nobody can check, when none is given."""
    cert_path: str = field(default="", metadata={"key": "tls.server.certPath"})
    key_path: str = field(default="", metadata={"key": "tls.server.keyPath"})
    key_password: str = field(default="", metadata={"key": "tls.server.keyPassword"}, repr=False)
    need_client_auth: Literal["none", "optional", "require"] = field(
        default="none", metadata={"key": "tls.server.need.client.auth"}
    )
    auth_client: bool = field(default=False, metadata={"key": "tls.server.authClient"})
    trust_cert_path: str = field(default="", metadata={"key": "tls.server.trustCertPath"})
    # What the broker shows, and asks to see, where it is the client: at name servers.
    use_tls: bool = field(default=False, metadata={"key": "useTLS"})
    """By default as tls.server.mode=enforcing."""
    client_cert_path: str = field(default="", metadata={"key": "tls.client.certPath"})
    client_key_path: str = field(default="", metadata={"key": "tls.client.keyPath"})
    client_key_password: str = field(
        default="", metadata={"key": "tls.client.keyPassword"}, repr=False
    )
    client_auth_server: bool = field(default=False, metadata={"key": "tls.client.authServer"})
    client_trust_cert_path: str = field(default="", metadata={"key": "tls.client.trustCertPath"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Everything in force, with what there is to say about how it was read."""

    broker: BrokerConfig
    store: StoreConfig
    server: ServerConfig
    tls: TlsConfig = field(default_factory=TlsConfig)
    extension_options: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    """Extensions' own keys, by extension; the values are nobody else's business."""
    path: str | None = None
    """The file it was read from; what is changed over the wire is written there."""
    warnings: tuple[str, ...] = ()
    inert: tuple[tuple[str, str], ...] = ()

    def items(self) -> Iterator[tuple[str, str]]:
        """Yield each effective (key, value) as text."""
        for section in (self.broker, self.server, self.store, self.tls):
            for one in fields(section):
                value = getattr(section, one.name)
                if not one.repr and value:
                    value = HIDDEN
                text = str(value).lower() if isinstance(value, bool) else str(value)
                yield key_of(one.name, one.metadata), text
        for name, options in self.extension_options.items():
            for key in options:
                yield f"{EXTENSION_OPTION}{name}.{key}", HIDDEN


# One event loop has no thread pools, one writer has no put lock, and nobody is billed. What tunes
# replication, DLedger or light queues tunes nothing while these are off; the counters of a deleted
# topic always go.
INERT = frozenset(
    [
        "adminBrokerThreadPoolNums",
        "autoDeleteUnusedStats",
        "channelNotActiveInterval",
        "clientAsyncSemaphoreValue",
        "clientCallbackExecutorThreads",
        "clientChannelMaxIdleTimeSeconds",
        "clientCloseSocketIfTimeout",
        "clientManageThreadPoolNums",
        "clientManagerThreadPoolQueueCapacity",
        "clientOnewaySemaphoreValue",
        "clientPooledByteBufAllocatorEnable",
        "clientSocketRcvBufSize",
        "clientSocketSndBufSize",
        "clientWorkerThreads",
        "clusterTest",
        "commercialBaseCount",
        "commercialBigCount",
        "commercialEnable",
        "commercialTimerCount",
        "commercialTransCount",
        "compressedRegister",
        "configStorePath",
        "connectTimeoutMillis",
        "consumerManageThreadPoolNums",
        "consumerManagerThreadPoolQueueCapacity",
        "dLegerGroup",
        "dLegerPeers",
        "dLegerSelfId",
        "debugLockEnable",
        "destroyMapedFileIntervalForcibly",
        "diskFallRecorded",
        "enableBatchPush",
        "enableScheduleAsyncDeliver",
        "endTransactionPoolQueueCapacity",
        "endTransactionThreadPoolNums",
        "filterServerNums",
        "flushConsumerOffsetHistoryInterval",
        "forceRegister",
        "forceVerifyPropCRC",
        "haHousekeepingInterval",
        "haListenPort",
        "haMasterAddress",
        "haSendHeartbeatInterval",
        "haSlaveFallbehindMax",
        "haTransferBatchSize",
        "heartbeatThreadPoolNums",
        "heartbeatThreadPoolQueueCapacity",
        "highSpeedMode",
        "isolateLogEnable",
        "maxDelayTime",
        "maxLmqConsumeQueueNum",
        "messageIndexSafe",
        "offsetCheckInSlave",
        "preferredLeaderId",
        "processReplyMessageThreadPoolNums",
        "productEnvName",
        "pullMessageThreadPoolNums",
        "pullThreadPoolQueueCapacity",
        "putMessageFutureThreadPoolNums",
        "putMsgIndexHightWater",
        "putThreadPoolQueueCapacity",
        "queryMessageThreadPoolNums",
        "queryThreadPoolQueueCapacity",
        "redeleteHangedFileInterval",
        "replyThreadPoolQueueCapacity",
        "rocketmqHome",
        "scheduleAsyncDeliverMaxPendingLimit",
        "scheduleAsyncDeliverMaxResendNum2Blocked",
        "sendMessageThreadPoolNums",
        "sendThreadPoolQueueCapacity",
        "serverAsyncSemaphoreValue",
        "serverCallbackExecutorThreads",
        "serverOnewaySemaphoreValue",
        "serverPooledByteBufAllocatorEnable",
        "serverSelectorThreads",
        "serverSocketBacklog",
        "serverSocketRcvBufSize",
        "serverSocketSndBufSize",
        "serverWorkerThreads",
        "slaveTimeout",
        "storePathDLedgerCommitLog",
        "transferMsgByHeap",
        "useEpollNativeSelector",
        "useReentrantLockWhenPutMessage",
        "writeBufferHighWaterMark",
        "writeBufferLowWaterMark",
    ]
)

# Keys whose other values would promise what this broker does not serve. Refused, not ignored: who
# sets brokerRole=SYNC_MASTER must not get a broker without a replica.
ONLY = {
    "brokerRole": ("ASYNC_MASTER", "replication is not served"),
    "duplicationEnable": ("false", "duplicated dispatch is not served"),
    "enableDLegerCommitLog": ("false", "DLedger is not served"),
    "enableLmq": ("false", "light queues are not served"),
    "enableMultiDispatch": ("false", "light queues are not served"),
    "readOnlyCommitLogStorePaths": ("", "one commit log directory is served"),
    "slaveReadEnable": ("false", "replication is not served"),
}

# Keys of 5.x that name Java classes, each with ours for what they do. To ignore them would be to
# run without the access control that was asked for.
JAVA_CLASSES = dict.fromkeys(
    (
        "authenticationMetadataProvider",
        "authenticationProvider",
        "authenticationStrategy",
        "authorizationMetadataProvider",
        "authorizationProvider",
        "authorizationStrategy",
    ),
    "accessValidators",
)

EXTENSIONS_MAX = 32
EXTENSION_KEYS = {
    "sendMessageHooks": EXTENSIONS_MAX,
    "consumeMessageHooks": EXTENSIONS_MAX,
    "rpcHooks": EXTENSIONS_MAX,
    "accessValidators": EXTENSIONS_MAX,
    "transactionListener": 1,
    "messageStorePlugIn": EXTENSIONS_MAX,
}
"""Keys that name extensions, each with how many it may name."""

ALIASES = {
    "mapedFileSizeCommitLog": "mappedFileSizeCommitLog",
    # A system property of the original's client.
    "tls.enable": "useTLS",
}

RANGES: Mapping[str, tuple[int, int]] = {
    "accessMessageInMemoryMaxRatio": (0, 100),
    "brokerId": (0, 0),
    "brokerPermission": (0, 7),
    "cleanResourceInterval": (100, 3_600_000),
    "commitIntervalCommitLog": (1, 60_000),
    "defaultTopicQueueNums": (1, 1024),
    "expectConsumerNumUseFilter": (1, 100_000),
    "maxErrorRateOfBloomFilter": (1, 99),
    "diskMaxUsedSpaceRatio": (10, 95),
    "flushConsumerOffsetInterval": (100, 600_000),
    "flushDelayOffsetInterval": (100, 600_000),
    "flushIntervalCommitLog": (1, 60_000),
    "flushIntervalConsumeQueue": (1, 600_000),
    "flushLeastPagesWhenWarmMapedFile": (1, 1 << 18),
    "listenPort": (0, 65_535),
    "mappedFileSizeCommitLog": (1 << 16, 1 << 30),
    "mappedFileSizeConsumeQueue": (CQ_UNIT_BYTES, 1 << 30),
    "mappedFileSizeConsumeQueueExt": (64, 1 << 30),
    "maxHashSlotNum": (1, 100_000_000),
    "maxIndexNum": (2, 100_000_000),
    "maxMessageSize": (1, 16 << 20),
    "maxMsgsNumBatch": (1, 1024),
    "maxTransferCountOnMessageInDisk": (1, 1024),
    "maxTransferCountOnMessageInMemory": (1, 1024),
    "namesrvListenPort": (0, 65_535),
    "registerNameServerPeriod": (1_000, 60_000),
    "serverChannelMaxIdleTimeSeconds": (1, 86_400),
    "transactionCheckInterval": (100, 3_600_000),
    "transactionCheckMax": (1, 1_000_000),
    "transientStorePoolSize": (2, 64),
    "serverConnectionsMax": (1, 100_000),
    "serverConnectionsPerHostMax": (1, 100_000),
}
UPDATABLE = frozenset(
    [
        "autoCreateSubscriptionGroup",
        "autoCreateTopicEnable",
        "brokerFastFailureEnable",
        "brokerPermission",
        "cleanFileForciblyEnable",
        "cleanResourceInterval",
        "commitCommitLogLeastPages",
        "commitCommitLogThoroughInterval",
        "commitIntervalCommitLog",
        "defaultQueryMaxNum",
        "deleteCommitLogFilesInterval",
        "deleteConsumeQueueFilesInterval",
        "deleteWhen",
        "diskMaxUsedSpaceRatio",
        "enableCalcFilterBitMap",
        "enablePropertyFilter",
        "fastFailIfNoBufferInStorePool",
        "fileReservedTime",
        "filterDataCleanTimeSpan",
        "filterSupportRetry",
        "flushCommitLogLeastPages",
        "flushCommitLogThoroughInterval",
        "flushConsumeQueueLeastPages",
        "flushConsumeQueueThoroughInterval",
        "flushConsumerOffsetInterval",
        "flushIntervalCommitLog",
        "flushIntervalConsumeQueue",
        "longPollingEnable",
        "maxMessageSize",
        "maxMsgsNumBatch",
        "maxTransferBytesOnMessageInDisk",
        "maxTransferBytesOnMessageInMemory",
        "maxTransferCountOnMessageInDisk",
        "maxTransferCountOnMessageInMemory",
        "notifyConsumerIdsChangedEnable",
        "osPageCacheBusyTimeOutMills",
        "registerNameServerPeriod",
        "shortPollingTimeMills",
        "startAcceptSendRequestTimeStamp",
        "syncFlushTimeout",
        "traceOn",
        "waitTimeMillsInHeartbeatQueue",
        "waitTimeMillsInPullQueue",
        "waitTimeMillsInSendQueue",
        "waitTimeMillsInTransactionQueue",
    ]
)
"""What may be changed while the broker runs: it takes effect at once, and no path is among it."""

NOT_NEGATIVE = (0, (1 << 63) - 1)

IMPORTANT = (
    "namesrvAddr",
    "brokerName",
    "brokerClusterName",
    "brokerId",
    "bindAddress",
    "brokerIP1",
    "listenPort",
    "embeddedNamesrv",
    "namesrvListenPort",
    "storePathRootDir",
    "storePathCommitLog",
    "flushDiskType",
    "fileReservedTime",
    "deleteWhen",
    "mappedFileSizeCommitLog",
    "maxMessageSize",
    "autoCreateTopicEnable",
    "autoCreateSubscriptionGroup",
    "defaultTopicQueueNums",
    "messageDelayLevel",
)
"""What `-m` prints."""

_NAME = re.compile(r"[%|a-zA-Z0-9_.-]{1,127}")
_EXTENSION_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_HOST = re.compile(r"[a-zA-Z0-9._\-\[\]:]+")
_PAIR = re.compile(r"((?:\\.|[^\\=:\s])+)\s*[=:\s]?\s*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def key_of(field_name: str, metadata: Mapping[str, str]) -> str:
    """Return RocketMQ's key of a field: camelCase, or what the field's metadata says."""
    head, *tail = field_name.split("_")
    return metadata.get("key") or head + "".join(part.capitalize() for part in tail)


def parse_properties(text: str) -> dict[str, str]:
    """Read Java properties text: comments, `=`, `:` or blank between, escapes, continued lines."""
    table: dict[str, str] = {}
    pending = ""
    for raw in text.splitlines():
        line = pending + raw.lstrip()
        pending = ""
        if not line or line[0] in "#!":
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        match = _PAIR.fullmatch(line)
        if match:
            table[_unescape(match[1])] = _unescape(match[2]).strip()
    return table


def parse_addresses(text: str) -> list[str]:
    """Split `host:port;host:port`.

    Raises:
        ValueError: a part is not host:port; its text is the argument.
    """
    addresses = [part.strip() for part in text.split(";") if part.strip()]
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not (_HOST.fullmatch(host) and port.isdecimal() and 0 < int(port) <= 65_535):
            raise ValueError(address)
    return addresses


def load(
    path: str | None,
    overrides: Mapping[str, str] | None = None,
    *,
    defaults: Mapping[str, str] | None = None,
) -> tuple[Configuration, list[ConfigError]]:
    """Read a configuration file, if any, and build what is in force.

    Overrides win over the file, the file over the defaults, these over RocketMQ's.

    Raises:
        ConfigError: the file cannot be read.
    """
    table: dict[str, str] = {}
    if path is not None:
        try:
            raw = Path(path).read_bytes()
        except OSError as error:
            wanted = f"a readable file ({error.strerror})"
            raise ConfigError("-c", path, wanted) from error
        if len(raw) > CONFIG_BYTES_MAX:
            raise ConfigError("-c", path, f"a file of at most {CONFIG_BYTES_MAX} bytes")
        table = parse_properties(raw.decode("utf-8", errors="replace"))
    table = {**(defaults or {}), **table, **(overrides or {})}
    configuration, errors = build({**_tls_table(table.get("tls.config.file")), **table})
    return replace(configuration, path=path), errors


def fixed_items() -> dict[str, str]:
    """Return the keys that have one value here; tools fail on null where they miss one."""
    return {"filterServerNums": "0"} | {key: only for key, (only, _) in ONLY.items()}


def update(configuration: Configuration, table: Mapping[str, str]) -> list[str]:
    """Change keys of a running broker, all of them or none; return those whose values changed.

    The one writer of these frozen objects: who reads a key when it is needed sees the change.

    Raises:
        ConfigError: a key is not in UPDATABLE (then `expected` is empty), or a value is bad.
    """
    values = {}
    for key, text in table.items():
        if key not in UPDATABLE:
            raise ConfigError(key, text, "")
        try:
            values[key] = _parse_value(key, text)
        except ValueError as error:
            raise ConfigError(key, text, str(error)) from error
    changed = []
    for section in (configuration.broker, configuration.store):
        for one in fields(section):
            key = key_of(one.name, one.metadata)
            if key in values and getattr(section, one.name) != values[key]:
                object.__setattr__(section, one.name, values[key])
                changed.append(key)
    return sorted(changed)


def edited(text: str, table: Mapping[str, str]) -> str:
    """Return a configuration file's text with other values; comments and order stay."""
    left = dict(table)
    lines = []
    for line in text.splitlines():
        match = _PAIR.fullmatch(line.strip()) if line.strip()[:1] not in ("#", "!", "") else None
        key = _unescape(match[1]) if match else ""
        if key in table:
            if key in left:
                lines.append(f"{key}={left.pop(key)}")
        else:
            lines.append(line)
    lines += [f"{key}={value}" for key, value in left.items()]
    return "\n".join(lines) + "\n"


def build(table: Mapping[str, str]) -> tuple[Configuration, list[ConfigError]]:
    """Turn keys and values into a Configuration, with every error found.

    The Configuration is of use only when the list of errors is empty.
    """
    errors: list[ConfigError] = []
    warnings: list[str] = []
    inert: list[tuple[str, str]] = []
    values: dict[str, Any] = {}
    options: dict[str, dict[str, str]] = {}
    for given, text in table.items():
        key = ALIASES.get(given, given)
        if key in KNOWN:
            try:
                values[key] = _parse_value(key, text)
            except ValueError as error:
                errors.append(ConfigError(given, text, str(error)))
        elif key in ONLY:
            only, reason = ONLY[key]
            if text.strip().casefold() != only.casefold():
                wanted = f"{only or 'nothing'!r}, since {reason}"
                errors.append(ConfigError(given, text, wanted))
        elif key in JAVA_CLASSES:
            if text:
                wanted = f"nothing, since {_no_java(JAVA_CLASSES[key])}"
                errors.append(ConfigError(given, text, wanted))
        elif key.startswith(EXTENSION_OPTION):
            name, _, option = key.removeprefix(EXTENSION_OPTION).partition(".")
            options.setdefault(name, {})[option] = text
        elif key in INERT:
            inert.append((key, text))
        else:
            warnings.append(_unknown(given))
    values.setdefault("useTLS", values.get("tls.server.mode") == "enforcing")
    if bool(values.get("tls.server.certPath")) != bool(values.get("tls.server.keyPath")):
        wanted = "given together with tls.server.keyPath"
        errors.append(
            ConfigError("tls.server.certPath", table.get("tls.server.certPath", ""), wanted)
        )
    is_told = values.get("namesrvAddr") or values.get("fetchNamesrvAddrByAddressServer")
    if values.get("embeddedNamesrv") is False and not is_told:
        wanted = "true, or a namesrvAddr: without a name server no client finds this broker"
        errors.append(ConfigError("embeddedNamesrv", "false", wanted))
    if values.get("accessValidators", PLAIN_ACL) != PLAIN_ACL and not values.get("aclEnable"):
        wanted = "aclEnable=true beside it: without it nobody is asked"
        errors.append(ConfigError("accessValidators", values["accessValidators"], wanted))
    active = {name for key in EXTENSION_KEYS for name in names_of(values.get(key, ""))}
    warnings += [
        f"{EXTENSION_OPTION}{name}.* is ignored: no extension {name!r} is named by any of "
        f"{', '.join(EXTENSION_KEYS)}"
        for name in options
        if name not in active
    ]
    if values.get("transientStorePoolEnable") and values.get("flushDiskType") == "SYNC_FLUSH":
        warnings.append("transientStorePoolEnable has no effect with flushDiskType=SYNC_FLUSH")
    configuration = Configuration(
        broker=_complete_broker(_section(BrokerConfig, values), values),
        store=_complete_store(_section(StoreConfig, values)),
        server=_section(ServerConfig, values),
        tls=_section(TlsConfig, values),
        extension_options=options,
        warnings=tuple(warnings),
        inert=tuple(sorted(inert)),
    )
    return configuration, errors


def advertised_address(bind_address: str) -> str:
    """Return the address clients are told: the bound one, or this host's own for a wildcard."""
    if bind_address not in ("0.0.0.0", "::"):
        return bind_address
    v4 = bind_address == "0.0.0.0"
    with socket.socket(socket.AF_INET if v4 else socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket sends nothing; it only picks the outgoing address.
            probe.connect(("192.0.2.1" if v4 else "2001:db8::1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1" if v4 else "::1"


def _tls_table(path: str | None) -> dict[str, str]:
    """Return the TLS keys of tls.config.file; there need not be such a file at its usual place.

    Raises:
        ConfigError: a file that was asked for cannot be read.
    """
    file = Path(path or TLS_CONFIG_FILE)
    if path is None and not file.is_file():
        return {}
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        wanted = f"a readable file ({error.strerror})"
        raise ConfigError("tls.config.file", str(file), wanted) from error
    ours = ("tls.server.", "tls.client.", "tls.test.")
    return {key: value for key, value in parse_properties(text).items() if key.startswith(ours)}


def _parse_value(key: str, text: str) -> Any:
    kind = KNOWN[key]
    if kind is bool:
        if text.casefold() not in ("true", "false"):
            raise ValueError("true or false")
        return text.casefold() == "true"
    if kind is int:
        low, high = RANGES.get(key, NOT_NEGATIVE)
        if not re.fullmatch(r"[+-]?\d{1,19}", text) or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(text)
    if kind is not str:
        if text not in get_args(kind):
            raise ValueError(" or ".join(get_args(kind)))
        return text
    if key in _TEXT_CHECKS:
        _TEXT_CHECKS[key](text)
    return text


def _check_addresses(text: str) -> None:
    try:
        parse_addresses(text)
    except ValueError as error:
        wanted = f"name servers as host:port;host:port ({str(error)!r} is not host:port)"
        raise ValueError(wanted) from None


def _check_url(text: str) -> None:
    parts = urlsplit(text)
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError("an address such as http://host:8080/rocketmq/nsaddr")


def _check_name(text: str) -> None:
    if not _NAME.fullmatch(text):
        raise ValueError("1 to 127 of the characters a-z A-Z 0-9 % | . _ -")


def _check_host(text: str) -> None:
    try:
        socket.getaddrinfo(text, None, flags=socket.AI_NUMERICHOST)
    except OSError:
        raise ValueError("a numeric address, such as 127.0.0.1") from None


def _check_hours(text: str) -> None:
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if not parts or not all(part.isdecimal() and int(part) < 24 for part in parts):
        raise ValueError("hours of the day from 00 to 23, separated by ;")


def _check_levels(text: str) -> None:
    if not text.split() or not all(re.fullmatch(r"\d{1,6}[smhd]", part) for part in text.split()):
        raise ValueError("delays such as '1s 5s 1m 2h', separated by blanks")


def names_of(text: str) -> list[str]:
    """Return the names of a list that is separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _no_java(key: str) -> str:
    return (
        "Java classes cannot be loaded: write a Python package with an entry point and name that "
        f"in {key} (docs/extensions.md)"
    )


def _check_extensions(key: str, at_most: int, text: str) -> None:
    names = names_of(text)
    if any("." in name for name in names):
        raise ValueError(f"names of Python extensions, since {_no_java(key)}")
    if not all(_EXTENSION_NAME.fullmatch(name) for name in names):
        raise ValueError("names of up to 64 of the characters a-z A-Z 0-9 _ -, separated by commas")
    if len(set(names)) < len(names):
        raise ValueError("each name once")
    if len(names) > at_most:
        raise ValueError("one name")


def _check_validators(text: str) -> None:
    _check_extensions("accessValidators", EXTENSIONS_MAX, text)
    if not names_of(text):
        raise ValueError(f"at least one name; {PLAIN_ACL} is RocketMQ's own")


def _check_commit_log_path(text: str) -> None:
    if "," in text:
        raise ValueError("one directory; several commit log directories are not served")


_TEXT_CHECKS: Mapping[str, Callable[[str], None]] = {
    "namesrvAddr": _check_addresses,
    "namesrvAddressServer": _check_url,
    "brokerName": _check_name,
    "brokerClusterName": _check_name,
    "msgTraceTopicName": _check_name,
    "bindAddress": _check_host,
    "brokerIP1": _check_host,
    "brokerIP2": _check_host,
    "deleteWhen": _check_hours,
    "messageDelayLevel": _check_levels,
    "storePathCommitLog": _check_commit_log_path,
    **{key: partial(_check_extensions, key, most) for key, most in EXTENSION_KEYS.items()},
    "accessValidators": _check_validators,
}


def _section(kind: type[Any], values: Mapping[str, Any]) -> Any:
    keys = {one.name: key_of(one.name, one.metadata) for one in fields(kind)}
    return kind(**{name: values[key] for name, key in keys.items() if key in values})


def _complete_broker(broker: BrokerConfig, values: Mapping[str, Any]) -> BrokerConfig:
    address = broker.broker_ip1 or advertised_address(broker.bind_address)
    return replace(
        broker,
        broker_ip1=address,
        broker_ip2=broker.broker_ip2 or address,
        broker_name=broker.broker_name or _host_name(),
        embedded_namesrv=values.get(
            "embeddedNamesrv",
            not (broker.namesrv_addr or broker.fetch_namesrv_addr_by_address_server),
        ),
    )


def _complete_store(store: StoreConfig) -> StoreConfig:
    root = Path(store.store_path_root_dir or "~/store").expanduser().absolute()
    commit_log = Path(store.store_path_commit_log or root / "commitlog").expanduser().absolute()
    units = -(-store.mapped_file_size_consume_queue // CQ_UNIT_BYTES)
    return replace(
        store,
        store_path_root_dir=str(root),
        store_path_commit_log=str(commit_log),
        mapped_file_size_consume_queue=units * CQ_UNIT_BYTES,
    )


def _host_name() -> str:
    return re.sub(r"[^%|a-zA-Z0-9_.-]", "-", socket.gethostname())[:127] or "broker"


def _unknown(key: str) -> str:
    known = [*KNOWN, *INERT, *ONLY, *JAVA_CLASSES, *ALIASES]
    close = difflib.get_close_matches(key, known, n=1, cutoff=CLOSE_ENOUGH)
    hint = f"; the nearest known key is {close[0]!r}" if close else ""
    return f"unknown configuration key {key!r} is ignored{hint}"


def _unescape(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else _CONTROL.get(match[2], match[2])

    return _ESCAPE.sub(character, text)


def _known_keys() -> dict[str, Any]:
    table = {}
    for kind in (BrokerConfig, ServerConfig, StoreConfig, TlsConfig):
        hints = get_type_hints(kind)
        for one in fields(kind):
            table[key_of(one.name, one.metadata)] = hints[one.name]
    return table


KNOWN = _known_keys()
"""Each key with an effect, and the type of its value."""
