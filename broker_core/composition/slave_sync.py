"""Following: finds a slave's master, and copies its metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.composition.foundation import client_limits_of
from broker_core.composition.naming import signer_of
from broker_core.ha.metadata_sync import FollowedTables, MetadataSync
from broker_core.listening.tls import client_context
from broker_core.processors.admin.ha import HaAdmin
from broker_core.remoting.client import RemotingClient

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker_core.composition.access import AccessParts
    from broker_core.composition.foundation import Foundation
    from broker_core.composition.naming import NamingParts
    from broker_core.composition.replication import ReplicationParts
    from broker_core.composition.storage import StorageParts
    from broker_core.message.data_version import DataVersion
    from broker_core.namesrv.routes import RegisterResult


@dataclass(frozen=True, slots=True)
class FollowingParts:
    """The parts that follow the master's metadata, and the replication status."""

    metadata_sync: MetadataSync
    ha_admin: HaAdmin


def build_following(
    foundation: Foundation,
    storage: StorageParts,
    access: AccessParts,
    naming: NamingParts,
    replication: ReplicationParts,
) -> FollowingParts:
    """Build the parts that follow the metadata; point them and the HA client to the master.

    Raises:
        ConfigError: a certificate for connections to the master can't be used.
    """
    role, tls = foundation.role, foundation.configuration.tls
    is_fixed = bool(foundation.configuration.ha.ha_master_address)
    client = RemotingClient(
        clock=foundation.clock,
        signer=signer_of(foundation),
        limits=client_limits_of(foundation.configuration),
        tls=client_context(tls) if tls.use_tls else None,
        # Name servers provide the master's address, not the configuration.
        trusts=lambda _address: False,
    )
    store = storage.store

    def delete_topics(deleted_before: Mapping[str, int]) -> None:
        for topic in store.delete_topics(deleted_before):
            # Groups may have committed offsets to this slave, too.
            storage.offsets.delete_topic(topic)

    tables = FollowedTables(
        storage.topics,
        storage.groups,
        storage.offsets,
        storage.schedule,
        storage.filters,
        storage.pop.modes,
        delete_topics,
        lambda: store.max_commit_log_offset,
        store.max_offset_in_queue,
        lambda: _accounts_version(access),
    )
    sync = MetadataSync(role, foundation.address, tables, client, foundation.clock)

    def on_master(found: RegisterResult) -> None:
        # Without a master keep trying the last one: it may be back before name servers list it.
        sync.follow(found.master_addr)
        if found.ha_server_addr and not is_fixed:
            replication.ha_slave.follow(found.ha_server_addr)

    registration = naming.registration
    registration.on_master = on_master
    role.listen(lambda: registration.identify(role.broker_id))
    ha_admin = HaAdmin(
        role,
        replication.ha_master,
        replication.ha_slave,
        sync.state,
        lambda: store.max_commit_log_offset,
        registration.register_soon,
        foundation.clock,
        lambda: storage.epochs.newest,
    )
    return FollowingParts(sync, ha_admin)


def _accounts_version(access: AccessParts) -> DataVersion | None:
    return None if access.acl is None else access.acl.state.versions.get(access.acl.path)
