"""ServerConfig: the remoting server, and the client that calls name servers.

Source: remoting/netty/NettyServerConfig.java, NettyClientConfig.java (4.9.7).
"""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.config import checks
from broker_core.config.setting import BYTES, MILLISECONDS, SECONDS, setting

SOCKET_BUFFER_BYTES_MAX = 1 << 30
DAY_S = 86_400
PORT_MAX = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Ports, sockets and their limits. With a buffer size of 0 the system chooses."""

    listen_port: int = setting(10911, high=PORT_MAX, important=True)
    server_channel_max_idle_time_seconds: int = setting(120, low=1, high=DAY_S, unit=SECONDS)
    server_socket_snd_buf_size: int = setting(0, high=SOCKET_BUFFER_BYTES_MAX, unit=BYTES)
    server_socket_rcv_buf_size: int = setting(0, high=SOCKET_BUFFER_BYTES_MAX, unit=BYTES)
    server_socket_backlog: int = setting(1024, low=1, high=65_535)
    client_channel_max_idle_time_seconds: int = setting(120, low=1, high=DAY_S, unit=SECONDS)
    client_socket_snd_buf_size: int = setting(0, high=SOCKET_BUFFER_BYTES_MAX, unit=BYTES)
    client_socket_rcv_buf_size: int = setting(0, high=SOCKET_BUFFER_BYTES_MAX, unit=BYTES)
    connect_timeout_millis: int = setting(3_000, low=1, high=600_000, unit=MILLISECONDS)
    # Trebuchet's own keys, which RocketMQ doesn't have.
    server_connections_max: int = setting(10_000, low=1, high=100_000)
    server_connections_per_host_max: int = setting(1_000, low=1, high=100_000)
    """Per address; this machine's own addresses don't count, since tools and proxies run here."""
    server_stranger_connections_max: int = setting(2_000, low=1, high=100_000)
    server_stranger_connections_per_host_max: int = setting(256, low=1, high=100_000)
    """The limit with aclEnable for connections without an authenticated request so far."""
    ha_proxy_protocol_enable: bool = False
    """Whether each connection must begin with a PROXY header (versions 1, 2)."""
    proxy_protocol_trusted: str = setting("", check=checks.networks)
    """Addresses and networks, separated by commas, from which such a header is accepted; with
    haProxyProtocolEnable only these may connect.
    """
    grpc_listen_port: int = setting(0, high=PORT_MAX, important=True)
    """The port for clients of RocketMQ 5; 0 turns it off."""
    grpc_advertised_endpoint: str = setting("", check=checks.endpoint)
    """host:port that these clients connect to; empty: the address that each of them used."""
    metrics_listen_port: int = setting(0, high=PORT_MAX, important=True)
    """The port for Prometheus; 0 turns it off."""
    metrics_listen_address: str = setting("", check=checks.optional_host)
    """Empty: bindAddress."""
    metrics_allowed_addresses: str = setting("", check=checks.networks)
    """Addresses and networks, separated by commas, that may read metrics. Empty: without aclEnable
    any host that reaches the port; with it only this host.
    """
    metrics_series_max: int = setting(10_000, low=1, high=1_000_000, live=True)
    """For each metric with a series per topic or group."""
