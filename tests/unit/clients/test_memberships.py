from __future__ import annotations

import pytest

from broker_core.clients.memberships import Memberships
from broker_core.config.limits import LimitsConfig
from broker_core.errors import RequestRefusedError
from tests.unit.clients.test_consumers import FakeConnection


def test_the_number_of_groups_per_connection_is_limited_and_each_can_be_renewed() -> None:
    memberships = Memberships(LimitsConfig(client_group_nums_max=2))
    connection = FakeConnection()
    memberships.add(connection, "a")
    memberships.add(connection, "b")

    with pytest.raises(RequestRefusedError, match="clientGroupNumsMax=2"):
        memberships.add(connection, "c")

    memberships.add(connection, "b")
    assert memberships.groups_of(connection) == ["a", "b"]


def test_the_total_number_of_group_members_is_limited() -> None:
    memberships = Memberships(LimitsConfig(member_nums_max=2))
    one, two = FakeConnection(), FakeConnection()
    memberships.add(one, "a")
    memberships.add(two, "a")

    with pytest.raises(RequestRefusedError, match="memberNumsMax=2"):
        memberships.add(two, "b")

    memberships.remove(one, "a")
    memberships.add(two, "b")
    assert memberships.groups_of(one) == []
