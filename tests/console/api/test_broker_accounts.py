"""Broker accounts by the API: no answer has a secret, and no secret is generated."""

from __future__ import annotations

import pytest

from console.gateway.accounts import BrokerAccess, BrokerAccount
from console.gateway.fakes.broker import ADDRESS
from console.people.audit.models import Entry

pytestmark = pytest.mark.django_db

ORDERS = BrokerAccount("order-service", topic_perms={"orders": "PUB"})
SECRET = "correct-horse-battery"


@pytest.fixture
def accounts(brokers):
    brokers.access[ADDRESS] = BrokerAccess(True, (ORDERS,), ("10.1.2.*",), is_described=True)
    return brokers


def test_an_account_is_created_with_the_programs_secret(programs, accounts) -> None:
    body = {"topic_perms": ["orders=SUB"]}
    path = "/broker-accounts/invoice-service"

    without = programs.admin.ask("PUT", path, body)
    made = programs.admin.ask("PUT", path, {**body, "secret_key": SECRET}, Idempotency_Key="a")
    listed = programs.admin.get("/broker-accounts")

    assert (without.status_code, made.status_code) == (422, 200)
    assert accounts.secrets[ADDRESS, "invoice-service"] == SECRET
    entry = Entry.objects.get()
    assert SECRET not in f"{made.content!r}{listed.content!r}{entry.before}{entry.after}"
    (broker,) = listed.json()
    assert [each["access_key"] for each in broker["accounts"]] == [
        "order-service",
        "invoice-service",
    ]


def test_an_account_is_previewed_changed_undone_and_deleted(programs, accounts) -> None:
    path = "/broker-accounts/order-service"
    planned = programs.admin.ask("PUT", f"{path}?dry_run=true", {"topic_perms": ["orders=SUB"]})
    assert accounts.access[ADDRESS].accounts == (ORDERS,)
    assert planned.json()["changes"]["wanted"]["broker-a"]["topicPerms orders"] == "SUB"

    done = programs.admin.ask("PUT", path, {"topic_perms": ["orders=SUB"]}).json()
    assert accounts.access[ADDRESS].account("order-service").topic_perms == {"orders": "SUB"}
    programs.admin.post(f"/audit/{done['entry']}/undo")
    assert accounts.access[ADDRESS].accounts == (ORDERS,)
    assert programs.admin.delete(path).status_code == 200
    assert accounts.access[ADDRESS].accounts == ()


def test_secrets_and_whitelist_addresses_are_set_and_access_is_explained(
    programs, accounts
) -> None:
    renewed = programs.admin.post("/broker-account-secrets/order-service", {"secret_key": SECRET})
    white = programs.admin.ask("PUT", "/broker-white-addresses", {"addresses": ["10.9.9.9"]})
    request = "?address=10.0.0.1&action=send&access_key=order-service&name=orders"
    report = programs.admin.get(f"/broker-access{request}").json()

    assert (renewed.status_code, white.status_code) == (200, 200)
    assert accounts.secrets[ADDRESS, "order-service"] == SECRET
    assert accounts.access[ADDRESS].white_addresses == ("10.9.9.9",)
    assert [(each["is_allowed"], each["rule"]) for each in report] == [
        (True, "topicPerms: orders=PUB")
    ]
    assert programs.operator.get("/broker-accounts").status_code == 403
