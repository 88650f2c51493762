"""Answers of name servers, and changes sent to all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.gateway.naming import NameServerView
from tests.console.gateway.support import ORDERS, ask

if TYPE_CHECKING:
    from console.gateway.ports import Gateway


async def view_of(gateway: Gateway, topic: str = "", namespace: str = "N") -> NameServerView:
    (view,) = (await ask(gateway.naming.views, topic, namespace)).values()
    assert isinstance(view, NameServerView)
    return view


async def test_an_entry_is_stored_listed_and_deleted(gateway: Gateway) -> None:
    (address,) = await ask(gateway.naming.views, "", "N")
    await ask(gateway.naming.put, address, "N", "orders", "broker-a:4")
    assert (await view_of(gateway)).entries == {"orders": "broker-a:4"}
    assert (await view_of(gateway, namespace="M")).entries == {}

    await ask(gateway.naming.remove, address, "N", "orders")
    assert (await view_of(gateway)).entries == {}


async def test_a_broker_leaves_the_routes_of_producers_and_returns(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    assert (await view_of(gateway, "nowhere")).route is None

    wiped = await ask(gateway.naming.set_writable, "broker-a", is_writable=False)
    (without,) = (await view_of(gateway, "Orders")).route or ()
    await ask(gateway.naming.set_writable, "broker-a", is_writable=True)
    (again,) = (await view_of(gateway, "Orders")).route or ()

    assert wiped >= 1
    assert (without.may_read, without.may_write) == (True, False)
    assert (again.may_read, again.may_write) == (True, True)
    assert (again.broker_name, again.read_queue_nums) == ("broker-a", 2)
