"""The page of name servers: brokers, routes, the key-value table, write permission."""

from __future__ import annotations

import pytest

from console.gateway.answers import TopicConfig
from console.gateway.errors import NameServerDownError
from console.gateway.fakes.naming import FakeNaming
from console.gateway.naming import NameServerView, RouteQueues
from console.people.audit.models import Entry
from tests.console.api.conftest import Program
from tests.console.plans import token_on

pytestmark = pytest.mark.django_db

PAGE = "/brokers/name-servers/"
PUT = f"{PAGE}put/"
OWN, OTHER, THIRD = "127.0.0.1:9876", "10.0.0.2:9876", "10.0.0.3:9876"


def test_differences_between_name_servers_are_named(actors, brokers) -> None:
    brokers.add_topic("Orders", queue_nums=2)
    brokers.kv_entries["ORDER_TOPIC_CONFIG", "Orders"] = "broker-a:2"
    brokers.other_name_servers = {
        "10.0.0.2:9876": NameServerView((), {"Orders": "broker-a:8"}),
        "10.0.0.3:9876": NameServerDownError(["10.0.0.3:9876"], "gone"),
    }

    answer = actors.reader.get(PAGE, {"topic": "Orders"})

    report = answer.context["reports"]
    assert [each.missing for each in report.brokers] == [("10.0.0.2:9876",)]
    assert report.entries[0].values == (
        ("broker-a:2", ("127.0.0.1:9876",)),
        ("broker-a:8", ("10.0.0.2:9876",)),
    )
    assert "The name server at 10.0.0.3:9876 isn&#x27;t responding" in answer.text
    assert "Topic not found on this name server." in answer.text
    assert "Put at every name server" not in answer.text


@pytest.fixture
def entries(brokers):
    """Two name servers, one of which lacks `orders`."""
    brokers.kv_entries["N", "orders"] = "old"
    brokers.other_name_servers = {OTHER: NameServerView((), {})}
    return brokers


def values(value: str) -> dict[str, str]:
    return {"namespace": "N", "key": "orders", "value": value}


def everywhere(brokers) -> tuple[str | None, str | None]:
    other = brokers.other_name_servers[OTHER]
    return brokers.kv_entries.get(("N", "orders")), other.entries.get("orders")


def test_an_entry_is_previewed_stored_and_undone_at_each_name_server(actors, entries) -> None:
    plan = actors.admin.post(PUT, values("new"))
    assert everywhere(entries) == ("old", None)
    assert "Planned changes" in plan.text

    notice = actors.admin.post(PUT, {"token": token_on(plan)}, follow=True)
    assert everywhere(entries) == ("new", "new")
    put = Entry.objects.get()
    assert put.before == {OWN: values("old"), OTHER: None}
    assert put.after == {OWN: values("new"), OTHER: values("new")}
    assert f"{PAGE}undo/{put.pk}/" in notice.text

    actors.admin.post(f"{PAGE}undo/{put.pk}/")
    assert everywhere(entries) == ("old", None)
    assert f"Undoes entry {put.pk}." in Entry.objects.latest("pk").remark


def test_undo_restores_a_deleted_entry(actors, entries) -> None:
    assert "Delete orders?" in actors.admin.get(f"{PAGE}kv/N/orders/delete/").text
    assert everywhere(entries) == ("old", None)

    actors.admin.post(f"{PAGE}kv/N/orders/delete/")
    assert everywhere(entries) == (None, None)
    assert actors.admin.get(f"{PAGE}kv/N/orders/delete/").status_code == 404
    undo = f"{PAGE}undo/{Entry.objects.get().pk}/"
    assert "Planned changes" in actors.admin.get(undo).text
    actors.admin.post(undo)

    assert everywhere(entries) == ("old", None)


def test_an_entry_changed_by_someone_else_is_shown_and_left_alone(actors, entries) -> None:
    form = actors.admin.get(PUT, {"namespace": "N", "key": "orders"})
    assert 'value="old"' in form.text
    seen = form.context["seen"]
    plan = actors.admin.post(PUT, values("new"))
    entries.kv_entries["N", "orders"] = "of somebody else"

    late = actors.admin.post(PUT, {"token": token_on(plan)})
    from_form = actors.admin.post(PUT, {**values("new"), "seen": seen})

    for answer in (late, from_form):
        assert answer.status_code == 409
        assert "Someone else changed this after you opened it" in answer.text
    assert everywhere(entries) == ("of somebody else", None)


def test_a_silent_name_server_must_be_accepted(actors, entries) -> None:
    entries.other_name_servers[THIRD] = NameServerDownError([THIRD], "gone")
    plan = actors.admin.post(PUT, values("new"))
    assert f"{THIRD} isn&#x27;t responding and wasn&#x27;t changed" in plan.text

    refused = actors.admin.post(PUT, {"token": token_on(plan)})
    assert (refused.status_code, everywhere(entries)) == (422, ("old", None))

    actors.admin.post(PUT, {"token": token_on(plan), "accepted": "on"})
    assert everywhere(entries) == ("new", "new")


def test_an_undo_waits_for_the_name_servers_that_had_the_entry(actors, entries) -> None:
    actors.admin.post(PUT, {"token": token_on(actors.admin.post(PUT, values("new")))})
    undo = f"{PAGE}undo/{Entry.objects.get().pk}/"
    entries.other_name_servers[OTHER] = NameServerDownError([OTHER], "gone")

    answer = actors.admin.post(undo)

    assert answer.status_code == 404
    assert f"{OTHER} isn&#x27;t reporting its entries" in answer.text
    assert entries.kv_entries["N", "orders"] == "new"


def test_an_entry_of_an_older_console_has_too_little_data_to_undo(actors, brokers) -> None:
    entry = Entry.objects.create(
        action="name-server.put", subject="N a", before={"value": "1"}, outcome="done"
    )

    answer = actors.admin.post(f"{PAGE}undo/{entry.pk}/")

    assert (answer.status_code, brokers.kv_entries) == (404, {})
    assert "contain enough detail to undo" in answer.text


def test_write_permission_is_wiped_and_added_once_confirmed(actors, brokers) -> None:
    url = f"{PAGE}write/broker-a/"
    assert "Remove write permission for broker-a?" in actors.admin.get(url, {"do": "wipe"}).text
    assert brokers.is_writable

    actors.admin.post(url, {"do": "wipe"})
    assert not brokers.is_writable
    actors.admin.post(url, {"do": "add"})

    assert brokers.is_writable
    actions = Entry.objects.order_by("pk").values_list("action", flat=True)
    assert list(actions) == ["name-server.wipe-write", "name-server.add-write"]
    assert actors.admin.get(f"{PAGE}write/nowhere/").status_code == 404


def test_a_wiped_write_permission_returns_with_the_notice_and_is_wiped_again(
    actors, brokers
) -> None:
    brokers.add_topic("Orders")
    notice = actors.admin.post(f"{PAGE}write/broker-a/", {"do": "wipe"}, follow=True)
    wiped = Entry.objects.get()
    undo = f"{PAGE}write-undo/{wiped.pk}/"
    assert "Write permission removed on broker-a for 1 topic." in notice.text
    assert undo in notice.text
    assert undo in actors.admin.get("/audit/").text

    assert "Restore write permission for broker-a?" in actors.admin.get(undo).text
    assert not brokers.is_writable
    again = actors.admin.post(undo, follow=True)

    assert brokers.is_writable
    given = Entry.objects.latest("pk")
    assert (given.action, given.subject) == ("name-server.add-write", "broker-a")
    assert given.remark == f"Undoes entry {wiped.pk}."
    assert "Write permission restored on broker-a for 1 topic." in again.text
    actors.admin.post(f"{PAGE}write-undo/{given.pk}/")
    assert not brokers.is_writable


def test_a_restored_write_permission_is_not_restored_again(actors, brokers) -> None:
    brokers.add_topic("Orders")
    actors.admin.post(f"{PAGE}write/broker-a/", {"do": "wipe"})
    undo = f"{PAGE}write-undo/{Entry.objects.get().pk}/"
    # Like a restarted broker.
    brokers.is_writable = True

    for answer in (actors.admin.get(undo), actors.admin.post(undo)):
        assert "broker-a already has write permission" in answer.text
    assert Entry.objects.count() == 1

    other = RouteQueues("broker-a", 4, 4, 4)
    brokers.other_name_servers = {OTHER: NameServerView((), {}, (other,))}
    actors.admin.post(undo)
    assert Entry.objects.latest("pk").action == "name-server.add-write"


def test_a_half_finished_change_of_write_permission_is_also_undone(
    actors, brokers, monkeypatch
) -> None:
    brokers.add_topic("Orders")

    def half(_naming: object, _name: str, *, is_writable: bool) -> int:
        brokers.is_writable = is_writable
        raise NameServerDownError([OTHER], "gone")

    with monkeypatch.context() as broken:
        broken.setattr(FakeNaming, "set_writable", half)
        text = actors.admin.post(f"{PAGE}write/broker-a/", {"do": "wipe"}, follow=True)
    assert f"The name server at {OTHER} isn&#x27;t responding" in text.text
    wiped = Entry.objects.get()
    assert (wiped.outcome, brokers.is_writable) == ("failed", False)

    undo = f"{PAGE}write-undo/{wiped.pk}/"
    assert undo in actors.admin.get("/audit/").text
    actors.admin.post(undo)

    assert brokers.is_writable


def test_undoing_it_names_the_topics_without_write_permission(actors, brokers) -> None:
    brokers.add_topic("Orders")
    brokers.topic_configs["Frozen"] = TopicConfig("Frozen", 4, 4, 4)
    actors.admin.post(f"{PAGE}write/broker-a/", {"do": "wipe"})

    page = actors.admin.get(f"{PAGE}write-undo/{Entry.objects.get().pk}/")

    assert "Topics without write permission" in page.text
    assert (
        "Frozen: producers are routed to them, but the broker rejects their messages" in page.text
    )


def test_programs_undo_a_wiped_write_permission(admin_account, operator_account, brokers) -> None:
    brokers.add_topic("Orders")
    program = Program(admin_account)
    wiped = program.post("/name-servers/write-permission/broker-a", {"is_writable": False}).json()
    undo = f"/audit/{wiped['entry']}/undo"

    refused = Program(operator_account).post(undo)
    planned = program.post(f"{undo}?dry_run=true").json()
    assert (refused.status_code, brokers.is_writable) == (403, False)
    assert planned["title"] == "Restore write permission for broker-a?"
    assert (
        program.post(undo).json()["detail"] == "Write permission restored on broker-a for 1 topic."
    )
    assert brokers.is_writable
    assert program.post(undo).json()["detail"].endswith("nothing to undo.")
    assert Entry.objects.filter(outcome="done").count() == 2


def test_only_administrators_change_name_servers(actors, brokers) -> None:
    for path in ("put/", "kv/N/orders/delete/", "undo/1/", "write/broker-a/", "write-undo/1/"):
        assert actors.operator.post(PAGE + path).status_code == 403


def test_programs_can_do_the_same(admin_account, brokers) -> None:
    program = Program(admin_account)
    entry = {"namespace": "N", "key": "a/b", "value": "1"}
    planned = program.ask("PUT", "/name-servers/entries?dry_run=true", entry)
    assert planned.json()["changes"]["now"] == {OWN: None}
    assert planned.json()["changes"]["wanted"] == {OWN: entry}

    put = program.ask("PUT", "/name-servers/entries", entry)
    assert program.get("/name-servers?namespace=N").json()["entries"] == {
        "a/b": {"1": ["127.0.0.1:9876"]}
    }
    program.post(f"/audit/{put.json()['entry']}/undo")
    assert brokers.kv_entries == {}
    program.ask("PUT", "/name-servers/entries", entry)
    program.delete("/name-servers/entries/N/a/b")
    program.post("/name-servers/write-permission/broker-a", {"is_writable": False})

    assert (brokers.kv_entries, brokers.is_writable) == ({}, False)


def test_programs_accept_what_a_silent_name_server_keeps(admin_account, brokers) -> None:
    program = Program(admin_account)
    entry = {"namespace": "N", "key": "a", "value": "1"}
    brokers.other_name_servers = {OTHER: NameServerDownError([OTHER], "gone")}

    refused = program.ask("PUT", "/name-servers/entries", entry)
    assert (refused.status_code, brokers.kv_entries) == (409, {})

    assert program.ask("PUT", "/name-servers/entries?accept=true", entry).status_code == 200
    assert brokers.kv_entries == {("N", "a"): "1"}
