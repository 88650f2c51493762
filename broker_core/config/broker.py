"""BrokerConfig: the broker's identity, permissions and intervals.

Source: common/BrokerConfig.java, broker/BrokerStartup.java (4.9.7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from broker_core.config import checks
from broker_core.config.lists import PLAIN_ACL
from broker_core.config.setting import BYTES, MILLISECONDS, PERCENT, setting

BROKERS_MAX = 16
EXTENSIONS_MAX = 32
HOUR_MS = 3_600_000
PORT_MAX = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """The broker's identity, permissions and intervals (milliseconds)."""

    namesrv_addr: str = setting("", check=checks.addresses, important=True)
    fetch_namesrv_addr_by_address_server: bool = setting(default=False, important=True)
    rmq_address_server_domain: str = setting("jmenv.tbsite.net", check=checks.domain)
    rmq_address_server_sub_group: str = setting("nsaddr", check=checks.path_part)
    broker_ip1: str = setting("", key="brokerIP1", check=checks.host, important=True)
    broker_ip2: str = setting("", key="brokerIP2", check=checks.host)
    broker_name: str = setting("", check=checks.name, important=True)
    broker_cluster_name: str = setting("DefaultCluster", check=checks.name, important=True)
    broker_id: int = setting(0, high=(1 << 31) - 1, important=True)
    """A master's ID is always 0; a slave's is greater."""
    broker_permission: int = setting(6, high=7, live=True)
    default_topic_queue_nums: int = setting(8, low=1, high=1024, important=True)
    auto_create_topic_enable: bool = setting(default=True, live=True, important=True)
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    auto_create_subscription_group: bool = setting(default=True, live=True, important=True)
    msg_trace_topic_name: str = setting("RMQ_SYS_TRACE_TOPIC", check=checks.name, important=True)
    trace_topic_enable: bool = setting(default=False, important=True)
    flush_consumer_offset_interval: int = setting(
        5_000, low=100, high=600_000, unit=MILLISECONDS, live=True
    )
    slave_read_enable: bool = setting(default=False, live=True)
    """Whether answers redirect slow consumers to a slave, and back when they have caught up."""
    long_polling_enable: bool = setting(default=True, live=True)
    short_polling_time_mills: int = setting(1_000, unit=MILLISECONDS, live=True)
    notify_consumer_ids_changed_enable: bool = setting(default=True, live=True)
    region_id: str = "DefaultRegion"
    trace_on: bool = setting(default=True, live=True)
    force_register: bool = True
    """Register each period; otherwise only when a name server has a different data version."""
    compressed_register: bool = False
    register_broker_timeout_mills: int = setting(6_000, unit=MILLISECONDS)
    register_name_server_period: int = setting(
        30_000, low=1_000, high=60_000, unit=MILLISECONDS, live=True
    )
    start_accept_send_request_time_stamp: int = setting(0, unit=MILLISECONDS, live=True)
    """Since the epoch."""
    broker_fast_failure_enable: bool = setting(default=True, live=True)
    wait_time_mills_in_send_queue: int = setting(200, unit=MILLISECONDS, live=True)
    wait_time_mills_in_pull_queue: int = setting(5_000, unit=MILLISECONDS, live=True)
    wait_time_mills_in_heartbeat_queue: int = setting(31_000, unit=MILLISECONDS, live=True)
    wait_time_mills_in_transaction_queue: int = setting(3_000, unit=MILLISECONDS, live=True)
    reject_transaction_message: bool = setting(default=False, live=True, important=True)
    recall_message_enable: bool = setting(default=False, live=True)
    """Whether producers may recall undelivered timer messages."""
    allow_recall_when_broker_not_writeable: bool = setting(default=True, live=True)
    """Whether they may recall them without write permission in brokerPermission."""
    transaction_time_out: int = setting(6_000, unit=MILLISECONDS, live=True, important=True)
    transaction_check_max: int = setting(15, low=1, high=1_000_000, live=True, important=True)
    """How often the producers of a transaction are asked about it."""
    transaction_check_interval: int = setting(
        60_000, low=100, high=HOUR_MS, unit=MILLISECONDS, live=True, important=True
    )
    store_reply_message_enable: bool = True
    enable_detail_stat: bool = True
    disable_consume_if_consumer_read_slowly: bool = setting(default=False, live=True)
    consumer_fallbehind_threshold: int = setting(16 << 30, unit=BYTES)
    acl_enable: bool = setting(default=False, important=True)
    enable_property_filter: bool = setting(default=False, live=True)
    enable_calc_filter_bit_map: bool = setting(default=False, live=True)
    filter_support_retry: bool = setting(default=False, live=True)
    filter_data_clean_time_span: int = setting(24 * HOUR_MS, unit=MILLISECONDS, live=True)
    max_error_rate_of_bloom_filter: int = setting(20, low=1, high=99, unit=PERCENT)
    expect_consumer_num_use_filter: int = setting(32, low=1, high=100_000)
    # Trebuchet's own keys, which RocketMQ doesn't have.
    brokers: int = setting(1, low=1, high=BROKERS_MAX)
    """How many masters `deploy/up` starts; a broker process is always one."""
    bind_address: str = setting("127.0.0.1", check=checks.host, important=True)
    admin_listen_address: str = setting("", check=checks.admin_listener)
    """The only address for administration: host:port on loopback, or the path of a unix socket.
    Empty: administration uses the broker's ports.
    """
    embedded_namesrv: bool = setting(default=True, important=True)
    namesrv_listen_port: int = setting(9876, high=PORT_MAX, important=True)
    namesrv_access_key: str = ""
    namesrv_secret_key: str = setting("", secret=True)
    """The account with which the broker signs requests to outside name servers, and to the other
    brokers of its set.
    """
    kv_config_path: str = ""
    namesrv_address_server: str = setting("", check=checks.url)
    """The URL for fetchNamesrvAddrByAddressServer; by default it is built from
    rmqAddressServerDomain and rmqAddressServerSubGroup.
    """
    acl_file: str = ""
    """plain_acl.yml; by default in conf/ next to the store directory."""
    admins_require_fresh_signature: bool = False
    """Whether every administrator's account requires fresh signatures."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = setting("INFO", live=True)
    """For all packages except those with their own logLevel.PACKAGE."""
    trace_level: Literal["off", "watched", "recorder"] = "recorder"
    """The level of the live trace at a start: docs/tracing.md."""
    trace_recorder_max_bytes: int = setting(16 << 20, low=1 << 20, high=1 << 30, unit=BYTES)
    trace_recorder_minutes: int = setting(10, low=1, high=24 * 60)
    """How far back the live trace's flight recorder reaches, if its memory suffices."""
    # Comma-separated names of extensions, in order; the last key is RocketMQ's.
    send_message_hooks: str = setting("", extensions_max=EXTENSIONS_MAX)
    consume_message_hooks: str = setting("", extensions_max=EXTENSIONS_MAX)
    rpc_hooks: str = setting("", extensions_max=EXTENSIONS_MAX)
    access_validators: str = setting(
        PLAIN_ACL, extensions_max=EXTENSIONS_MAX, check=checks.validators
    )
    transaction_listener: str = setting("", extensions_max=1)
    message_store_plug_in: str = setting("", extensions_max=EXTENSIONS_MAX)
