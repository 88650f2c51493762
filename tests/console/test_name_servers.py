"""The page of name servers: brokers, routes, the key-value table, write permission."""

from __future__ import annotations

import pytest

from console.audit.models import Entry
from console.gateway.errors import NameServerDownError
from console.gateway.naming import NameServerView
from tests.console.api.conftest import Program

pytestmark = pytest.mark.django_db

PAGE = "/brokers/name-servers/"


def test_what_name_servers_say_differently_is_named(actors, brokers) -> None:
    brokers.add_topic("Orders", queue_nums=2)
    brokers.kv_entries["ORDER_TOPIC_CONFIG", "Orders"] = "broker-a:2"
    brokers.other_name_servers = {
        "10.0.0.2:9876": NameServerView((), {"Orders": "broker-a:8"}),
        "10.0.0.3:9876": NameServerDownError(["10.0.0.3:9876"], "gone"),
    }

    answer = actors.reader.get(PAGE, {"topic": "Orders"})

    told = answer.context["told"]
    assert [each.missing for each in told.brokers] == [("10.0.0.2:9876",)]
    assert told.entries[0].values == (
        ("broker-a:2", ("127.0.0.1:9876",)),
        ("broker-a:8", ("10.0.0.2:9876",)),
    )
    assert "The name server at 10.0.0.3:9876 does not answer" in answer.text
    assert "It does not know this topic." in answer.text
    assert "Put at every name server" not in answer.text


def test_an_entry_is_put_and_deleted_with_its_value_in_the_audit(actors, brokers) -> None:
    form = {"namespace": "N", "key": "orders", "value": "new"}
    brokers.kv_entries["N", "orders"] = "old"

    actors.admin.post(f"{PAGE}put/", form)
    assert brokers.kv_entries == {("N", "orders"): "new"}
    actors.admin.post(f"{PAGE}kv/N/orders/delete/")

    assert not brokers.kv_entries
    put, deleted = Entry.objects.order_by("pk")
    assert (put.before, put.after) == ({"value": "old"}, {"value": "new"})
    assert deleted.before == {"value": "new"}
    assert actors.admin.get(f"{PAGE}kv/N/orders/delete/").status_code == 404


def test_write_permission_is_wiped_and_added_once_confirmed(actors, brokers) -> None:
    url = f"{PAGE}write/broker-a/"
    assert "Take broker-a out of the routes" in actors.admin.get(url, {"do": "wipe"}).text
    assert brokers.is_writable

    actors.admin.post(url, {"do": "wipe"})
    assert not brokers.is_writable
    actors.admin.post(url, {"do": "add"})

    assert brokers.is_writable
    actions = Entry.objects.order_by("pk").values_list("action", flat=True)
    assert list(actions) == ["name-server.wipe-write", "name-server.add-write"]
    assert actors.admin.get(f"{PAGE}write/nowhere/").status_code == 404


def test_only_administrators_change_name_servers(actors, brokers) -> None:
    for path in ("put/", "kv/N/orders/delete/", "write/broker-a/"):
        assert actors.operator.post(PAGE + path).status_code == 403


def test_programs_do_the_same(admin_account, brokers) -> None:
    program = Program(admin_account)
    entry = {"namespace": "N", "key": "a/b", "value": "1"}
    planned = program.ask("PUT", "/name-servers/entries?dry_run=true", entry)
    assert planned.json()["changes"] == {"now": None, "wanted": "1"}

    program.ask("PUT", "/name-servers/entries", entry)
    assert program.get("/name-servers?namespace=N").json()["entries"] == {
        "a/b": {"1": ["127.0.0.1:9876"]}
    }
    program.delete("/name-servers/entries/N/a/b")
    program.post("/name-servers/write-permission/broker-a", {"is_writable": False})

    assert (brokers.kv_entries, brokers.is_writable) == ({}, False)
