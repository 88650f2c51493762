"""Reports about slaves to a SYNC_MASTER's store."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from broker_core.ha.role import Role
from broker_core.ha.sync_replicas import SyncReplicas


class OneMaster:
    """The parts that `SyncReplicas` connects; the store's and the slaves' are fakes."""

    def __init__(self, role: Any = "SYNC_MASTER", **keys: int) -> None:
        table = {"in_sync_replicas": 3, "min_in_sync_replicas": 2, "slave_timeout": 1_500, **keys}
        self.config = SimpleNamespace(**table, ha_slave_fallbehind_max=256)
        self.in_sync = 1
        self.missing: list[bool] = []
        self.acknowledged: list[int] = []
        self.roles: list[tuple[bool, object]] = []
        store = SimpleNamespace(
            max_commit_log_offset=1_000,
            availability=SimpleNamespace(
                need_replicas=lambda *, are_missing: self.missing.append(are_missing)
            ),
            acknowledge=SimpleNamespace(replicated=self.acknowledged.append),
            take_role=lambda *, is_slave, terms: self.roles.append((is_slave, terms)),
        )
        self.ha_master = SimpleNamespace(
            on_acknowledged=None,
            replicated_where=lambda slaves: 100 * slaves,
            in_sync_slaves=lambda offset: self.in_sync if offset == 1_000 else 0,
        )
        self.role = Role(role, 0 if role != "SLAVE" else 1)
        parts = cast("tuple[Any, Any, Any]", (self.config, self.ha_master, store))
        self.replicas = SyncReplicas(parts[0], self.role, parts[1], parts[2])


def test_terms_are_read_from_the_keys_each_time() -> None:
    master = OneMaster()
    replicas = master.replicas
    assert (replicas.slaves, replicas.timeout_s, replicas.fall_behind_max) == (2, 1.5, 256)

    master.config.in_sync_replicas = 2
    assert replicas.slaves == 1


def test_messages_on_enough_slaves_are_acknowledged() -> None:
    master = OneMaster()

    master.ha_master.on_acknowledged()

    assert master.acknowledged == [200]
    assert master.missing == [False]


def test_puts_are_rejected_while_slaves_are_missing() -> None:
    master = OneMaster()
    master.in_sync = 0

    master.replicas.replicated()

    assert master.missing == [True]


def test_a_master_that_needs_no_slave_has_none_missing() -> None:
    master = OneMaster(min_in_sync_replicas=1)
    master.in_sync = 0

    master.replicas.replicated()

    assert master.missing == [False]


async def test_the_store_waits_for_slaves_only_in_a_sync_master() -> None:
    master = OneMaster()
    for role in ("SYNC_MASTER", "ASYNC_MASTER"):
        await master.role.changed(role)
        master.replicas.take_role()
    await master.role.changed("SLAVE", 1)
    master.replicas.take_role()

    assert master.roles == [(False, master.replicas), (False, None), (True, None)]
    assert master.acknowledged == [200]
    assert master.missing == [False, False, False]
