"""Prerequisites for changes: a lake's query, a second step, accounts of brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.urls import reverse
from django_otp.oath import TOTP
from django_otp.plugins.otp_totp.models import TOTPDevice

from console.accounts.second_step import OFFERED_KEY
from console.broker.broker_accounts.changing import values_of
from console.data.sql.desk import Desk
from console.data.sql.models import SavedQuery
from console.data.sql.runs import ROWS, Column, Outcome, new_run
from console.gateway.accounts import BrokerAccess, BrokerAccount
from console.gateway.fakes.broker import ADDRESS
from tests.console.conftest import PASSWORD

if TYPE_CHECKING:
    from django.test import Client

ORDER_SERVICE = BrokerAccount("order-service", topic_perms={"Orders": "PUB"})
BROKER_ACCOUNT: dict[str, object] = {
    "default_topic_perm": "DENY",
    "default_group_perm": "SUB",
    "topic_perms": "Orders=PUB",
}
ACCOUNT_CHANGES: dict[str, tuple[dict[str, object], str]] = {
    "broker_accounts:create": (
        {**BROKER_ACCOUNT, "access_key": "new-service"},
        "broker-account.create",
    ),
    "broker_accounts:delete": ({"name": "order-service"}, "broker-account.delete"),
    "broker_accounts:edit": (BROKER_ACCOUNT, "broker-account.update"),
    "broker_accounts:renew": ({"name": "order-service"}, "broker-account.secret"),
    "broker_accounts:undo": ({}, "broker-account.update"),
    "broker_accounts:white": ({"addresses": "10.9.9.9"}, "broker-white.update"),
    "brokers:kv-delete": ({}, "name-server.delete"),
    "brokers:kv-put": (
        {"namespace": "N", "key": "orders", "value": "broker-a:4"},
        "name-server.put",
    ),
    "brokers:kv-undo": ({}, "name-server.put"),
    "brokers:write-perm": ({"do": "wipe"}, "name-server.wipe-write"),
    "brokers:write-undo": ({}, "name-server.add-write"),
}
ACCOUNT_UNDONE = (
    "broker-account.update",
    "order-service",
    {"broker-a": {**values_of(ORDER_SERVICE), "admin": True}},
    {"broker-a": values_of(ORDER_SERVICE)},
)


KV_UNDONE = (
    "name-server.put",
    "N orders",
    {"127.0.0.1:9876": {"namespace": "N", "key": "orders", "value": "broker-a:1"}},
    {"127.0.0.1:9876": {"namespace": "N", "key": "orders", "value": "broker-a:2"}},
)
NAMING_UNDONE = {
    "brokers:kv-undo": KV_UNDONE,
    "brokers:write-undo": ("name-server.wipe-write", "broker-a", None, {"topics": 1}),
}


def accounts_world(brokers) -> dict[str, str]:
    """Set up a broker with an account and a name server with an entry; return addresses.

    The broker's write permission is wiped.
    """
    brokers.is_writable = False
    brokers.kv_entries["N", "orders"] = "broker-a:2"
    brokers.access[ADDRESS] = BrokerAccess(True, (ORDER_SERVICE,), is_described=True)
    return {
        "brokers:kv-delete": reverse("brokers:kv-delete", args=["N", "orders"]),
        "brokers:write-perm": reverse("brokers:write-perm", args=["broker-a"]),
        **{
            f"broker_accounts:{word}": reverse(f"broker_accounts:{word}", args=["order-service"])
            for word in ("delete", "edit", "renew")
        },
    }


def sql_world(account, settings, monkeypatch, tmp_path) -> dict[str, str]:
    """Create a result and a saved query; queries start no process."""
    settings.TREBUCHET_DATA, settings.TREBUCHET_LAKE = tmp_path, str(tmp_path / "lake")
    monkeypatch.setattr(Desk, "start", lambda _desk, _run: None)
    monkeypatch.setattr("console.data.sql.views.tables", lambda: {"tables": []})
    run = new_run("SELECT 1", "UTC", account.pk, account.username, None)
    run.make()
    (run.directory / ROWS).write_bytes(b"[1]\n")
    run.end(Outcome("done", 1, "", (Column("1", "int32", "integer"),), rows=1))
    Group.objects.create(pk=7, name="analysts")
    kept = SavedQuery.objects.create(owner=account, name="kept", sql="SELECT 1")
    return {
        "sql:cancel": reverse("sql:cancel", args=[run.id]),
        "sql:delete": reverse("sql:delete", args=[kept.pk]),
        "sql:schedule": reverse("sql:schedule", args=[kept.pk]),
        "sql:schedule-end": reverse("sql:schedule-end", args=[kept.pk]),
        "sql:export": reverse("sql:export", args=[run.id, "csv"]),
    }


def second_step_data(name: str, client: Client) -> dict[str, object]:
    """Return a valid code for ada's second step."""
    if name == "accounts:second-step-set-up":
        client.get(reverse(name))
        return {"code": f"{TOTP(bytes.fromhex(client.session[OFFERED_KEY])).token():06d}"}
    devices = {
        person.get_username(): TOTPDevice.objects.create(user=person)
        for person in get_user_model().objects.filter(username__in=("ada", "bob"))
    }
    code = f"{TOTP(devices['ada'].bin_key).token():06d}"
    if name == "accounts:code":
        client.logout()
        client.post(reverse("accounts:sign-in"), {"username": "ada", "password": PASSWORD})
    return {"code": code}
