"""The foundation: the basis of all other parts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.clock import SteadyClock, SystemClock
from broker_core.config.lists import parse_networks
from broker_core.counted_log import CountedLog
from broker_core.delay.levels import DelayLevels
from broker_core.extensions.loading import load as load_extensions
from broker_core.formats.bloom_filter import BloomFilter
from broker_core.ha.role import Role
from broker_core.listening.budgets import Budgets
from broker_core.listening.proxies import TrustedProxies
from broker_core.listening.tls import TlsGate
from broker_core.message.ids import host_bytes
from broker_core.metadata.document import Document
from broker_core.native.loading import Native, load as load_native
from broker_core.remoting.limits import REQUESTS, RemotingLimits, StrangerLimits
from broker_core.storage import FileStorage

if TYPE_CHECKING:
    from broker_core.clock import Clock
    from broker_core.config.configuration import Configuration
    from broker_core.config.server import ServerConfig
    from broker_core.extensions.loading import Extensions
    from broker_core.storage import Storage

CONFIG_DIRECTORY = "config"


@dataclass(frozen=True, slots=True)
class Foundation:
    """The configuration, the clock, the file system, and the broker's identity."""

    configuration: Configuration
    clock: Clock
    steady: SteadyClock
    counted_log: CountedLog
    files: Storage
    config_directory: Path
    address: str
    """The address that clients connect to."""
    store_host: bytes
    """The same address in the form used in records and message IDs."""
    role: Role
    levels: DelayLevels
    bloom: BloomFilter
    extensions: Extensions
    tls: TlsGate
    """One certificate and one mode for both ports and the embedded name server's port."""
    proxies: TrustedProxies | None
    """The only proxies through which all ports can be reached; None for direct connections."""
    native: Native
    budgets: Budgets
    """Shared by the connections of all ports."""

    def document(self, name: str) -> Document:
        """Return the configuration file of this name."""
        return Document(self.files, self.config_directory / name)


def build_foundation(
    configuration: Configuration, clock: Clock | None = None, files: Storage | None = None
) -> Foundation:
    """Load the extensions and derive values from the configuration.

    Raises:
        ConfigError: an extension or the native code can't be loaded, or a certificate can't be
            used.
    """
    config = configuration.broker
    bloom = BloomFilter(
        config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter
    )
    store_config = replace(configuration.store, bit_map_length_consume_queue_ext=bloom.bit_num)
    configuration = replace(configuration, store=store_config)
    clock = clock or SystemClock()
    listen_port = configuration.server.listen_port
    address = f"{config.broker_ip1}:{listen_port}"
    return Foundation(
        configuration=configuration,
        clock=clock,
        steady=SteadyClock(clock),
        counted_log=CountedLog(clock),
        files=files or FileStorage(),
        config_directory=Path(store_config.store_path_root_dir) / CONFIG_DIRECTORY,
        address=address,
        store_host=host_bytes(config.broker_ip1, listen_port),
        role=Role(store_config.broker_role, config.broker_id),
        levels=DelayLevels.of(store_config.message_delay_level),
        bloom=bloom,
        extensions=load_extensions(configuration, address),
        tls=TlsGate(configuration.tls, clock=clock),
        proxies=proxies_of(configuration.server),
        native=load_native(),
        budgets=Budgets(clock),
    )


def proxies_of(server: ServerConfig) -> TrustedProxies | None:
    """Return the proxies whose PROXY headers are accepted, or None without PROXY headers."""
    if not server.ha_proxy_protocol_enable:
        return None
    return TrustedProxies(parse_networks(server.proxy_protocol_trusted))


def limits_of(configuration: Configuration) -> RemotingLimits:
    """Return the limits for a server's peers."""
    server = configuration.server
    return RemotingLimits(
        frame=REQUESTS,
        connections_max=server.server_connections_max,
        connections_per_host_max=server.server_connections_per_host_max,
        idle_s=server.server_channel_max_idle_time_seconds,
        send_buffer_bytes=server.server_socket_snd_buf_size,
        receive_buffer_bytes=server.server_socket_rcv_buf_size,
        backlog=server.server_socket_backlog,
    )


def server_limits_of(configuration: Configuration, *, is_guarded: bool) -> RemotingLimits:
    """Return a server's limits, lower for unauthenticated peers if requests need accounts."""
    server = configuration.server
    if not is_guarded:
        return limits_of(configuration)
    strangers = StrangerLimits(
        connections_max=server.server_stranger_connections_max,
        connections_per_host_max=server.server_stranger_connections_per_host_max,
        idle_s=min(StrangerLimits().idle_s, server.server_channel_max_idle_time_seconds),
    )
    return replace(limits_of(configuration), strangers=strangers)


def client_limits_of(configuration: Configuration) -> RemotingLimits:
    """Return the limits of the client for requests to name servers."""
    server = configuration.server
    return RemotingLimits(
        idle_s=server.client_channel_max_idle_time_seconds,
        send_buffer_bytes=server.client_socket_snd_buf_size,
        receive_buffer_bytes=server.client_socket_rcv_buf_size,
        connect_timeout_s=server.connect_timeout_millis / 1000,
    )
