"""Administration by the API: users, roles, masking, labels, tracing, with the pages' effects."""

from __future__ import annotations

import json

import pytest
from django.contrib.auth import get_user_model

from console.accounts.invitations import open_invitation
from console.accounts.models import CustomRole, Invitation
from console.accounts.roles import Role, give_role, role_of
from console.accounts.scopes import EVERYTHING, WRITE
from console.api.models import KeptAnswer
from console.broker.configs.models import Label
from console.demo import services as demo_services
from console.gateway import access
from console.gateway.answers import MessageQueue
from console.gateway.outgoing import NewMessage
from console.people.audit.models import Entry
from console.people.masking.models import MaskingRule
from tests.console.api.conftest import FakeDemo, Program
from tests.support.console_objects import make

pytestmark = pytest.mark.django_db

ROLE = {"name": "pay", "actions": ["topic.change"], "topics": ["pay-*"]}
RULE = {"name": "ibans", "topics": "pay-*", "kind": "pattern", "what": "DE[0-9]{20}"}


@pytest.fixture
def made(programs, brokers, monkeypatch):
    monkeypatch.setattr(demo_services, "demo_process", FakeDemo())
    brokers.add_topic("Orders")
    brokers.add_group("billing")
    brokers.put("Orders", 0, 1_000)
    half = NewMessage(MessageQueue("Orders", "broker-a", 0), b"", {}, is_half=True)
    access.gateway().sending.send([half])
    return make()


@pytest.fixture
def other_administrator():
    account = get_user_model().objects.create_user("zoe", is_staff=True)
    give_role(account, Role.ADMINISTRATOR)
    return account


# Method, address, body; the audit action.
WRITES = [
    ("PATCH", "/people/{person}", {"role": "operator", "roles": []}, "account.role"),
    ("POST", "/people/{person}/switch", {"enabled": False}, "account.switch"),
    ("DELETE", "/people/{person}", None, "account.remove"),
    ("DELETE", "/people/{person}/sessions", None, "account.sessions-end"),
    ("POST", "/invitations", {"name": "otto", "role": "operator"}, "account.invite"),
    ("DELETE", "/invitations/{invitation}", None, "account.withdraw"),
    ("POST", "/roles", ROLE, "role.create"),
    ("PATCH", "/roles/{role}", {"groups": ["a", "b-*"]}, "role.update"),
    ("DELETE", "/roles/{role}", None, "role.delete"),
    ("POST", "/masking", RULE, "masking.create"),
    ("PATCH", "/masking/{mask}", {"what": "[0-9]{15}"}, "masking.update"),
    ("DELETE", "/masking/{mask}", None, "masking.delete"),
    ("PATCH", "/labels/topics/Orders", {"owner": "team-pay"}, "topic.label"),
    ("PATCH", "/labels/groups/billing", {"owner": "team-pay"}, "group.label"),
    ("POST", "/tracing/levels", {"level": "full", "minutes": 5}, "trace.level"),
    ("POST", "/demo/start", None, "demo.start"),
    ("POST", "/demo/stop", None, "demo.stop"),
    ("POST", "/messages/unmask/broker-a/0/0/Orders", None, "message.unmask"),
    ("POST", "/brokers/broker-a/0/transactions/0/commit", None, "transaction.commit"),
]
IDS = [f"{method} {path}" for method, path, _body, _action in WRITES]


@pytest.mark.parametrize(("method", "path", "body", "action"), WRITES, ids=IDS)
def test_a_change_is_applied_and_recorded_with_its_token(
    method, path, body, action, programs, made
) -> None:
    done = programs.admin.ask(method, path.format(**made), body)

    assert done.status_code in (200, 201), done.content
    entry = Entry.objects.get()
    assert (entry.action, entry.outcome) == (action, "done")
    assert entry.token == programs.admin.token.name


ADMINISTRATORS = [
    each for each in WRITES if "/labels/" not in each[1] and "/transactions/" not in each[1]
]


@pytest.mark.parametrize(("method", "path", "body", "action"), ADMINISTRATORS)
def test_only_an_administrator_changes_it(method, path, body, action, programs, made) -> None:
    done = programs.operator.ask(method, path.format(**made), body)

    assert done.status_code == 403
    assert not Entry.objects.filter(outcome="done").exists()


def test_everything_does_not_include_users(other_administrator, made) -> None:
    """Accounts outlive the token that creates them, so that needs an explicit scope."""
    program = Program(other_administrator, (f"{EVERYTHING}:{WRITE}",))

    refused = program.post("/invitations", {"name": "otto", "role": "administrator"})

    assert refused.status_code == 403
    assert "people:write" in refused.json()["detail"]
    assert program.get("/people").status_code == 200


def test_an_invitation_is_shown_once_and_not_stored(programs, made) -> None:
    body = {"name": "otto", "role": "viewer"}
    first = programs.admin.post("/invitations", body, Idempotency_Key="one")
    again = programs.admin.post("/invitations", body, Idempotency_Key="one")

    token = first.json()["link"].rstrip("/").rpartition("/")[2]
    assert open_invitation(token) is not None
    assert (again.status_code, again.content) == (201, b"")
    assert Invitation.objects.filter(name="otto").count() == 1
    kept = [bytes(each.body).decode() for each in KeptAnswer.objects.all()]
    assert token not in "".join(kept)
    assert token not in json.dumps(list(Entry.objects.values("before", "after", "remark")))


def test_a_role_is_assigned_and_the_other_values_stay(programs, made) -> None:
    programs.admin.patch(f"/people/{made['person']}", {"role": "operator"})

    account = get_user_model().objects.get(pk=made["person"])
    assert role_of(account) is Role.OPERATOR
    assert [each.name for each in account.custom_roles.all()] == ["shop"]


def test_the_last_administrator_stays(programs, made, admin_account) -> None:
    for method, path, body in (
        ("PATCH", "", {"role": "viewer"}),
        ("POST", "/switch", {"enabled": False}),
        ("DELETE", "", None),
    ):
        refused = programs.admin.ask(method, f"/people/{admin_account.pk}{path}", body)
        assert refused.status_code == 409

    admin_account.refresh_from_db()
    assert admin_account.is_staff
    assert admin_account.is_active


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PATCH", "/people/{person}", {"role": "king"}, 422),
        ("PATCH", "/people/{person}", {"roles": ["nothing"]}, 422),
        ("PATCH", "/people/{person}", {"roles": "shop"}, 422),
        ("PATCH", "/people/999", {"role": "viewer"}, 404),
        ("POST", "/people/{person}/switch", {"enabled": "no"}, 422),
        ("POST", "/people/{person}/second-step/off", None, 409),
        ("DELETE", "/people/{person}/sessions/999", None, 404),
        ("POST", "/invitations", {"name": "bob", "role": "viewer"}, 422),
        ("POST", "/roles", {"name": "empty"}, 422),
        ("POST", "/masking", {**RULE, "what": "("}, 422),
        ("PATCH", "/labels/topics/None", {"owner": "x"}, 404),
        ("PATCH", "/labels/groups/billing", {"message_type": "FIFO"}, 422),
        ("POST", "/tracing/levels", {"level": "full"}, 422),
        ("POST", "/tracing/levels", {"level": "loud"}, 422),
        ("POST", "/brokers/broker-a/0/transactions/0/forget", None, 404),
        ("POST", "/brokers/broker-a/0/transactions/7/commit", None, 404),
        ("GET", "/tracing/recorded?ask=gossip", None, 422),
        ("GET", "/brokers/broker-a/0/delays/99", None, 404),
    ],
)
def test_invalid_input_is_rejected_and_changes_nothing(
    method, path, body, status, programs, made
) -> None:
    refused = programs.admin.ask(method, path.format(**made), body)

    assert refused.status_code == status, refused.content
    assert refused["Content-Type"] == "application/problem+json"
    assert not Entry.objects.filter(outcome="done").exists()


def test_a_role_and_a_rule_keep_values_missing_in_the_body(programs, made) -> None:
    programs.admin.patch(f"/roles/{made['role']}", {"groups": ["a"]})
    programs.admin.patch(f"/masking/{made['mask']}", {"topics": ["x-*", "y"]})

    role, rule = CustomRole.objects.get(), MaskingRule.objects.get()
    assert (role.name, role.topics, role.groups) == ("shop", ["orders", "shop-*"], ["a"])
    assert (rule.name, rule.topics, rule.what) == ("cards", ["x-*", "y"], "[0-9]{16}")


def test_a_rule_is_tried_on_a_sample_and_not_saved(programs, made) -> None:
    sample = {**RULE, "sample": "to DE00000000000000000001 now"}

    tried = programs.admin.post("/masking?dry_run=true", sample).json()

    assert "DE0" not in tried["text"]
    assert tried["text"].startswith("to ")
    assert MaskingRule.objects.count() == 1


def test_a_label_is_changed_and_undone(programs, made) -> None:
    entry = programs.operator.patch("/labels/topics/Orders", {"owner": "team-pay"}).json()["entry"]
    assert programs.reader.get("/labels/topics/Orders").json()["owner"] == "team-pay"
    programs.operator.patch("/labels/topics/Orders", {"owner": "team-shop"})

    overtaken = programs.operator.post(f"/audit/{entry}/undo")
    programs.operator.patch("/labels/topics/Orders", {"owner": "team-pay"})
    done = programs.operator.post(f"/audit/{entry}/undo")

    assert (overtaken.status_code, done.status_code) == (409, 200)
    assert not Label.objects.exists()


def test_waiting_transactions_are_listed_and_decided(programs, brokers, made) -> None:
    listed = programs.operator.get("/brokers/broker-a/0/transactions").json()
    plan = programs.operator.post("/brokers/broker-a/0/transactions/0/commit?dry_run=true").json()
    levels = programs.reader.get("/brokers/broker-a/0/delays").json()

    assert [each["topic"] for each in listed["items"]] == ["Orders"]
    assert plan["dry_run"]
    assert len(levels) == 18
    reader = programs.reader.post("/brokers/broker-a/0/transactions/0/commit")
    assert reader.status_code == 403


def test_recorders_and_levels_are_read(programs, made) -> None:
    assert programs.reader.get("/tracing/recorded").status_code == 200
    assert programs.reader.get("/tracing/levels").status_code == 200
