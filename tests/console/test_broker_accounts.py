"""Broker accounts: list, change by plans, explain; secrets are shown once."""

from __future__ import annotations

import html
import json
import re

import pytest

from console.gateway.access import gateway
from console.gateway.accounts import BrokerAccess, BrokerAccount
from console.gateway.answers import BrokerNode
from console.gateway.errors import SYSTEM_ERROR, BrokerDownError, RequestFailedError
from console.gateway.fakes.accounts import FakeAccounts
from console.gateway.fakes.broker import ADDRESS
from console.people.audit.models import Entry
from tests.console.plans import applied, token_on

pytestmark = pytest.mark.django_db

LIST = "/brokers/accounts/"
ORDERS = BrokerAccount(
    "order-service", topic_perms={"orders": "PUB"}, group_perms={"billing": "SUB"}
)
OTHER = BrokerNode("DefaultCluster", "broker-a", 1, "127.0.0.1:10931")
FORM = {
    "default_topic_perm": "DENY",
    "default_group_perm": "DENY",
    "topic_perms": "orders=PUB|SUB\ninvoices=SUB",
    "group_perms": "billing=SUB",
    "white_address": "",
}


@pytest.fixture
def accounts(brokers):
    """Two brokers with the same account."""
    brokers.slaves.append(OTHER)
    for address in (ADDRESS, OTHER.address):
        brokers.access[address] = BrokerAccess(True, (ORDERS,), ("10.1.2.*",), is_described=True)
    return brokers


def account(brokers, address: str = ADDRESS, key: str = "order-service") -> BrokerAccount:
    found: BrokerAccount | None = brokers.access[address].account(key)
    assert found is not None
    return found


def secret_on(response) -> str:
    found = re.search(r'id="secret-key">([^<]+)<', response.text)
    assert found, response.text
    return html.unescape(found[1])


def test_with_access_control_off_the_page_explains_how_to_turn_it_on(actors, brokers) -> None:
    page = actors.admin.get(LIST).text

    assert "Access control is off" in page
    assert "aclEnable=true" in page
    assert f"{LIST}new/" not in page


def test_the_list_names_differences_between_brokers(actors, accounts) -> None:
    other = BrokerAccount("order-service", topic_perms={"orders": "SUB"})
    lonely = BrokerAccount("audit-service", is_admin=True)
    accounts.access[OTHER.address] = BrokerAccess(True, (other, lonely), is_described=True)

    rows = {row.account.access_key: row for row in actors.admin.get(LIST).context["rows"]}

    assert rows["audit-service"].missing == ("broker-a",)
    assert {each.key: each.values for each in rows["order-service"].differences} == {
        "topicPerms orders": (("broker-a", "PUB"), ("broker-a:1", "SUB")),
        "groupPerms billing": (("broker-a", "SUB"), ("broker-a:1", "-")),
    }


def test_an_unresponsive_broker_is_named_beside_the_responsive_ones(actors, accounts) -> None:
    accounts.access[OTHER.address] = BrokerDownError(OTHER.address, "gone")

    page = actors.admin.get(LIST).text

    assert "broker-a:1: The broker at 127.0.0.1:10931 isn&#x27;t responding" in page
    assert "order-service" in page


def test_a_new_account_is_on_every_broker_and_its_secret_is_shown_once(
    actors, accounts, caplog
) -> None:
    made = applied(actors.admin, f"{LIST}new/", {**FORM, "access_key": "invoice-service"})

    secret = secret_on(made)
    assert len(secret) >= 32
    assert "no-store" in made["Cache-Control"]
    assert {accounts.secrets[each, "invoice-service"] for each in (ADDRESS, OTHER.address)} == {
        secret
    }
    assert account(accounts, key="invoice-service").topic_perms == {
        "invoices": "SUB",
        "orders": "PUB|SUB",
    }
    entry = Entry.objects.get()
    assert (entry.action, entry.outcome) == ("broker-account.create", "done")
    everything = json.dumps([entry.before, entry.after, entry.remark, entry.subject])
    assert secret not in everything + actors.admin.get(LIST).text + caplog.text


def test_a_change_keeps_the_secret_and_is_undone(actors, accounts) -> None:
    url = f"{LIST}a/order-service/edit/"
    plan = actors.admin.post(url, FORM)
    assert "topicPerms invoices" in plan.text
    assert account(accounts) == ORDERS

    actors.admin.post(url, {"token": token_on(plan)})

    changed = account(accounts, OTHER.address)
    assert changed.topic_perms == {"orders": "PUB|SUB", "invoices": "SUB"}
    assert not accounts.secrets
    entry = Entry.objects.get()
    actors.admin.post(f"{LIST}undo/{entry.pk}/")
    assert account(accounts, OTHER.address).topic_perms == {"orders": "PUB"}
    assert Entry.objects.latest("pk").remark == f"Undoes entry {entry.pk}."


def test_undoing_a_creation_removes_the_account(actors, accounts) -> None:
    applied(actors.admin, f"{LIST}new/", {**FORM, "access_key": "invoice-service"})

    actors.admin.post(f"{LIST}undo/{Entry.objects.get().pk}/")

    assert accounts.access[ADDRESS].accounts == (ORDERS,)


def test_a_concurrent_change_is_shown_and_not_overwritten(actors, accounts) -> None:
    url = f"{LIST}a/order-service/edit/"
    plan = actors.admin.post(url, FORM)
    theirs = BrokerAccount("order-service", white_address="10.9.9.9")
    accounts.access[ADDRESS] = BrokerAccess(True, (theirs,), is_described=True)

    answer = actors.admin.post(url, {"token": token_on(plan)})

    assert answer.status_code == 409
    assert account(accounts) == theirs


def test_rocketmqs_own_brokers_get_a_new_secret_at_each_change(actors, accounts) -> None:
    accounts.access[OTHER.address] = BrokerAccess(True, (ORDERS,))
    url = f"{LIST}a/order-service/edit/"
    assert "because broker-a:1 is an Apache RocketMQ broker" in actors.admin.get(url).text

    made = applied(actors.admin, url, FORM)

    both = {accounts.secrets[each, "order-service"] for each in (ADDRESS, OTHER.address)}
    assert both == {secret_on(made)}


def test_a_new_secret_goes_to_every_broker_once_the_name_is_typed(actors, accounts) -> None:
    accounts.access[OTHER.address] = BrokerAccess(True, (), is_described=True)
    url = f"{LIST}a/order-service/secret/"

    assert actors.admin.post(url, {"name": "another"}).status_code == 422
    made = actors.admin.post(url, {"name": "order-service"})

    both = {accounts.secrets[each, "order-service"] for each in (ADDRESS, OTHER.address)}
    assert both == {secret_on(made)}
    assert Entry.objects.get().action == "broker-account.secret"


def test_a_secret_is_shown_even_if_a_later_broker_rejects(actors, accounts, monkeypatch) -> None:
    plain = FakeAccounts.save

    def refuse(self, node, account, secret) -> None:
        if node == OTHER:
            raise RequestFailedError(node.address, SYSTEM_ERROR, "the disk is full")
        plain(self, node, account, secret)

    monkeypatch.setattr(FakeAccounts, "save", refuse)
    made = applied(actors.admin, f"{LIST}new/", {**FORM, "access_key": "invoice-service"})

    assert accounts.secrets[ADDRESS, "invoice-service"] == secret_on(made)
    assert "the disk is full" in made.text
    assert Entry.objects.get().outcome == "failed"


def test_an_account_is_deleted_once_its_name_is_typed(actors, accounts) -> None:
    url = f"{LIST}a/order-service/delete/"

    assert actors.admin.post(url, {"name": ""}).status_code == 422
    actors.admin.post(url, {"name": "order-service"})

    assert accounts.access[ADDRESS].accounts == accounts.access[OTHER.address].accounts == ()


def test_the_console_does_not_lock_itself_out(actors, accounts, settings) -> None:
    settings.TREBUCHET_BROKER_ACCESS_KEY = "order-service"

    for word in ("delete", "secret"):
        url = f"{LIST}a/order-service/{word}/"
        actors.admin.post(url, {"name": "order-service"})
    url = f"{LIST}a/order-service/edit/"
    answer = actors.admin.post(url, {"token": token_on(actors.admin.post(url, FORM))})

    assert "The console itself uses this account" in answer.text
    assert account(accounts) == ORDERS
    assert not accounts.secrets


def test_whitelist_addresses_are_changed_on_all_brokers_and_undone(actors, accounts) -> None:
    applied(actors.admin, f"{LIST}white/", {"addresses": "10.1.2.3\n10.1.3.{1,2}\n"})

    assert accounts.access[OTHER.address].white_addresses == ("10.1.2.3", "10.1.3.{1,2}")
    actors.admin.post(f"{LIST}undo/{Entry.objects.get().pk}/")
    assert accounts.access[ADDRESS].white_addresses == ("10.1.2.*",)


@pytest.mark.parametrize("page", ["white/", "a/order-service/edit/"])
def test_favourites_are_next_to_account_forms_like_everywhere(actors, accounts, page) -> None:
    html_of_page = actors.admin.get(f"{LIST}{page}").text

    assert 'href=""' not in html_of_page
    assert list(actors.admin.get(f"{LIST}{page}").context["places"]) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic_perms": "orders"},
        {"topic_perms": "orders=ALL"},
        {"topic_perms": "a,b=PUB"},
        {"topic_perms": "a=PUB\na=SUB"},
        {"group_perms": "billing=PUB"},
        {"access_key": "short"},
        {"access_key": "with space"},
        {"default_topic_perm": ""},
    ],
)
def test_an_impossible_change_is_not_planned(wrong, actors, accounts) -> None:
    answer = actors.admin.post(f"{LIST}new/", {**FORM, "access_key": "invoice-service", **wrong})

    assert "Planned changes" not in answer.text
    assert "field__error" in answer.text


def test_each_broker_reports_its_decision_and_the_deciding_line(actors, accounts) -> None:
    accounts.access[OTHER.address] = BrokerAccess(True, (ORDERS,))
    fields = {"access_key": "order-service", "address": "10.0.0.1", "action": "send"}

    page = actors.admin.get(f"{LIST}may/", {**fields, "name": "orders"})

    ours, theirs = page.context["answers"]
    assert (ours.is_allowed, ours.rule) == (True, "topicPerms: orders=PUB")
    assert theirs.is_allowed is None
    assert actors.admin.get(f"{LIST}may/", fields).status_code == 422


def test_extensions_that_must_agree_leave_nothing_allowed_for_certain(actors, accounts) -> None:
    accounts.validators = ("badge",)
    fields = {"access_key": "order-service", "address": "10.0.0.1", "name": "orders"}

    sent = actors.admin.get(f"{LIST}may/", {**fields, "action": "send"})
    read = actors.admin.get(f"{LIST}may/", {**fields, "action": "read"})

    assert sent.context["answers"][0].is_allowed is None
    assert "plain_acl.yml allows it, but badge also has to allow it" in sent.text
    # One broker that denies is enough.
    assert read.context["answers"][0].is_allowed is False


def test_a_plan_for_something_else_changes_no_account(actors, accounts) -> None:
    accounts.add_topic("order-service")
    of_topic = actors.admin.post(
        "/topics/t/order-service/edit/",
        {"write_queue_nums": 9, "read_queue_nums": 9, "perm": 6, "broker_names": ["broker-a"]},
    )

    for token in ("forged", token_on(of_topic)):
        answer = actors.admin.post(f"{LIST}a/order-service/edit/", {"token": token})
        assert answer.status_code == 404
    assert account(accounts) == ORDERS


def test_only_administrators_see_accounts(actors, accounts) -> None:
    for client in (actors.reader, actors.operator):
        assert client.get(LIST).status_code == 403
        assert client.get(f"{LIST}may/").status_code == 403
    assert gateway().accounts.all()
