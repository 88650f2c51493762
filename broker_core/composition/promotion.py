"""Promotion: the parts that ensure a single master in the set, and promote another."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from broker_core.composition.naming import outer_client
from broker_core.errors import ReplicationError
from broker_core.formats.paths import StorePaths
from broker_core.ha.comparison import LogComparison
from broker_core.ha.damage import DamageCheck
from broker_core.ha.epochs import Epochs
from broker_core.ha.mastership import Mastership
from broker_core.ha.peers import Peers, SetMember
from broker_core.ha.promotion import Promotion
from broker_core.processors.admin.replication import ReplicationAdmin

if TYPE_CHECKING:
    from broker_core.composition.foundation import Foundation
    from broker_core.composition.naming import NamingParts
    from broker_core.composition.replication import ReplicationParts
    from broker_core.composition.storage import StorageParts
    from broker_core.config.configuration import Configuration
    from broker_core.ha.metadata_sync import MetadataSync
    from broker_core.ha.shutdown import Shutdown
    from broker_core.storage import Storage

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PromotionParts:
    """The parts that use epochs."""

    ending: Shutdown
    mastership: Mastership
    admin: ReplicationAdmin


def with_stored_role(configuration: Configuration, files: Storage) -> Configuration:
    """Return the configuration with the role set by a promotion or by the loss of mastership.

    Raises:
        StoreError: epoch.json is damaged.
    """
    store, broker = configuration.store, configuration.broker
    epochs = Epochs(StorePaths.of(store.store_path_root_dir, "").epoch, files)
    epochs.load()
    role = epochs.role
    if role is None or (role.configured_role, role.configured_id) != configured_role(configuration):
        return configuration
    logger.warning(
        "role differs from the configuration file role=%s broker_id=%d epoch=%d configured=%s",
        role.broker_role,
        role.broker_id,
        epochs.newest,
        role.configured_role,
    )
    return replace(
        configuration,
        store=replace(store, broker_role=role.broker_role),
        broker=replace(broker, broker_id=role.broker_id),
    )


def configured_role(configuration: Configuration) -> tuple[str, int]:
    """Return brokerRole and brokerId from the configuration."""
    return configuration.store.broker_role, configuration.broker.broker_id


def set_member(foundation: Foundation) -> SetMember:
    """Return this broker's identity in its set."""
    broker, ha = foundation.configuration.broker, foundation.configuration.ha
    return SetMember(
        broker.broker_cluster_name,
        broker.broker_name,
        foundation.address,
        f"{broker.broker_ip2}:{ha.ha_listen_port}",
    )


def build_peers(foundation: Foundation, naming: NamingParts) -> Peers:
    """Build the client for requests to the other brokers of the set."""
    name_server = naming.name_server
    return Peers(
        # Only name servers are configured, and they provide the brokers' addresses.
        outer_client(foundation, trusts=lambda each: each in naming.registration.name_servers),
        set_member(foundation),
        lambda: naming.registration.name_servers,
        None if name_server is None else name_server.routes.cluster_info,
    )


def build_promotion(
    foundation: Foundation,
    configured: tuple[str, int],
    storage: StorageParts,
    replication: ReplicationParts,
    metadata_sync: MetadataSync,
    peers: Peers,
    ending: Shutdown,
) -> PromotionParts:
    """Build the parts, and make the slave compare logs before it follows a master.

    `configured`: brokerRole and brokerId of the configuration file.
    """
    role, epochs, store = foundation.role, storage.epochs, storage.store
    ha_slave = replication.ha_slave
    comparison = LogComparison(
        epochs, store, foundation.files, peers, ending, lambda: metadata_sync.state.master_addr
    )
    ha_slave.before_transfer = comparison.before_transfer

    async def stop_following() -> None:
        await ha_slave.stop()
        store.replay.cut()
        # A master reads and counts only flushed data: unflushed half messages would be skipped in
        # the search for their outcomes.
        if not await store.flush():
            raise ReplicationError(
                "this broker can't write to its disk; see its log, then restart it"
            )

    def followed() -> str | None:
        state = ha_slave.state()
        return state.master_address if state.state == "following" else None

    promotion = Promotion(
        role,
        configured,
        epochs,
        peers,
        former_id=lambda: role.broker_id,
        followed=followed,
        last_role=lambda: comparison.master_role,
        stop_following=stop_following,
        max_offset=lambda: store.max_commit_log_offset,
    )
    return PromotionParts(
        ending,
        Mastership(role, configured, epochs, peers, ending, foundation.clock),
        ReplicationAdmin(
            set_member(foundation),
            role,
            epochs,
            store.files,
            DamageCheck(
                store.files, is_guarded=foundation.configuration.store.enabled_append_prop_crc
            ),
            promotion,
        ),
    )
