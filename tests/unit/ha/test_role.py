from __future__ import annotations

import asyncio

import pytest

from broker_core.ha.role import Role


def test_a_master_has_the_masters_id_whatever_its_file_contains() -> None:
    role = Role("SYNC_MASTER", 7)

    assert (role.broker_role, role.broker_id, role.is_slave) == ("SYNC_MASTER", 0, False)


def test_a_slave_has_its_own_id() -> None:
    role = Role("SLAVE", 7)

    assert (role.broker_role, role.broker_id, role.is_slave) == ("SLAVE", 7, True)


def test_a_slave_with_the_masters_id_is_rejected() -> None:
    with pytest.raises(ValueError, match="above 0, not 0"):
        Role("SLAVE", 0)


def test_listeners_are_notified_of_a_change_one_after_the_other() -> None:
    role = Role("SLAVE", 1)
    heard = []

    async def slow() -> None:
        await asyncio.sleep(0)
        heard.append(("slow", role.broker_role, role.is_slave))

    role.listen(slow)
    role.listen(lambda: heard.append(("quick", role.broker_role, role.is_slave)))
    asyncio.run(role.changed("ASYNC_MASTER"))

    assert heard == [("slow", "ASYNC_MASTER", False), ("quick", "ASYNC_MASTER", False)]


def test_a_rejected_change_changes_nothing() -> None:
    role = Role("ASYNC_MASTER", 0)
    heard: list[str] = []
    role.listen(lambda: heard.append("changed"))

    with pytest.raises(ValueError, match="above 0"):
        asyncio.run(role.changed("SLAVE", 0))
    assert (role.broker_role, role.is_slave, heard) == ("ASYNC_MASTER", False, [])
