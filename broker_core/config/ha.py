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
    """What the HA service of a master and the HA client of a slave obey; milliseconds, bytes."""

    ha_listen_port: int = setting(10_912, high=PORT_MAX)
    """By default listenPort + 1. The original ignores the key and always takes that."""
    ha_send_heartbeat_interval: int = setting(
        5_000, low=10, high=10 * MINUTE_MS, unit=MILLISECONDS, live=True
    )
    ha_housekeeping_interval: int = setting(
        20_000, low=100, high=10 * MINUTE_MS, unit=MILLISECONDS, live=True
    )
    ha_transfer_batch_size: int = setting(32_768, low=1, high=16 * MIB, unit=BYTES, live=True)
    ha_master_address: str = setting("", check=checks.ha_address, important=True)
    """Where a slave finds its master's HA port; empty: name servers say it."""
    ha_slave_fallbehind_max: int = setting(256 * MIB, low=1, unit=BYTES, live=True)
    slave_timeout: int = setting(3_000, low=1, high=10 * MINUTE_MS, unit=MILLISECONDS, live=True)
    # 5.x's.
    in_sync_replicas: int = setting(2, low=1, high=REPLICAS_MAX, live=True)
    """So many replicas, this one included, must have a message before SYNC_MASTER answers OK. The
    default is what 4.9 does; 5.x's own is 1, which waits for nobody."""
    min_in_sync_replicas: int = setting(1, low=1, high=REPLICAS_MAX, live=True)
    """With fewer replicas in sync, this one included, a SYNC_MASTER takes no messages."""
    sync_from_last_file: bool = True
    """Whether a slave without a log gets it from the master's last file on, as in 4.9, or all."""
    max_ha_transfer_byte_in_second: int = setting(100 * MIB, low=1, unit=BYTES, live=True)
    """Of each slave, when haFlowControlEnable is set."""
    ha_flow_control_enable: bool = setting(default=False, live=True)
    # Ours, beyond RocketMQ's keys.
    ha_ack_mode: Literal["received", "flushed"] = "received"
    """What a slave acknowledges: what it has received and checked, or what its disk has."""
    ha_allowed_addresses: str = setting("", check=checks.networks)
    """Addresses and networks, separated by commas, that may read the log over the HA port. Empty:
    without aclEnable anybody who reaches the port; with it only this host."""
    ha_tls: bool = False
    """Whether the HA port, and a slave's connection to it, use TLS (tls.server.*, tls.client.*)."""
