"""HaConfig: replication between the master and the slaves of a broker set.

Source: store/config/MessageStoreConfig.java (4.9.7; inSyncReplicas, minInSyncReplicas,
syncFromLastFile and maxHaTransferByteInSecond: 5.3.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from broker_core.config import checks
from broker_core.config.setting import BYTES, MILLISECONDS, setting

MIB = 1 << 20
PORT_MAX = 65_535
MINUTE_MS = 60_000
REPLICAS_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class HaConfig:
    """Settings of a master's HA service and a slave's HA client; milliseconds, bytes."""

    ha_listen_port: int = setting(10_912, high=PORT_MAX)
    """By default listenPort + 1. RocketMQ ignores the key and always uses that."""
    ha_send_heartbeat_interval: int = setting(
        5_000, low=10, high=10 * MINUTE_MS, unit=MILLISECONDS, live=True
    )
    ha_housekeeping_interval: int = setting(
        20_000, low=100, high=10 * MINUTE_MS, unit=MILLISECONDS, live=True
    )
    ha_transfer_batch_size: int = setting(32_768, low=1, high=16 * MIB, unit=BYTES, live=True)
    ha_master_address: str = setting("", check=checks.ha_address, important=True)
    """The HA address of a slave's master; empty: name servers provide it."""
    ha_slave_fallbehind_max: int = setting(256 * MIB, low=1, unit=BYTES, live=True)
    slave_timeout: int = setting(3_000, low=1, high=10 * MINUTE_MS, unit=MILLISECONDS, live=True)
    # From 5.x.
    in_sync_replicas: int = setting(2, low=1, high=REPLICAS_MAX, live=True)
    """The number of replicas, including this one, that must have a message before SYNC_MASTER
    answers OK. The default matches 4.9; the default of 5.x is 1, which waits for no other replica.
    """
    min_in_sync_replicas: int = setting(1, low=1, high=REPLICAS_MAX, live=True)
    """With fewer replicas in sync, including this one, a SYNC_MASTER refuses messages."""
    sync_from_last_file: bool = True
    """Whether a slave without a log starts at the master's last file, as in 4.9, or copies all."""
    max_ha_transfer_byte_in_second: int = setting(100 * MIB, low=1, unit=BYTES, live=True)
    """Per slave, when haFlowControlEnable is set."""
    ha_flow_control_enable: bool = setting(default=False, live=True)
    # Trebuchet's own keys, which RocketMQ doesn't have.
    ha_ack_mode: Literal["received", "flushed"] = "received"
    """Whether a slave acknowledges data once received and checked, or once on its disk."""
    ha_allowed_addresses: str = setting("", check=checks.networks)
    """Addresses and networks, separated by commas, that may read the log over the HA port. Empty:
    without aclEnable any host that reaches the port; with it only this host.
    """
    ha_tls: bool = False
    """Whether the HA port, and a slave's connection to it, use TLS (tls.server.*, tls.client.*)."""
