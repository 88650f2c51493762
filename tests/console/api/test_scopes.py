"""Scopes: a token's permissions, for every operation and every route to it.

The other API tests check that the scopes of an operation are sufficient: their tokens have no
others (`Program`).
"""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from django.test import RequestFactory
from django.urls import URLResolver, get_resolver

from console.accounts.actions import Action
from console.accounts.models import CustomRole
from console.accounts.rights import Rights, ScopeMissingError, acts_for, rights_on
from console.accounts.roles import Role, give_role
from console.accounts.scopes import EVERYTHING, OF_ACTIONS, every_scope, has
from console.api.frame import BELOW
from console.api.operations import OPERATIONS
from console.api.v1.audit import UNDO_SCOPES
from console.gateway.access import gateway
from console.gateway.accounts import BrokerAccess, BrokerAccount
from console.gateway.fakes.broker import ADDRESS
from console.gateway.files import ConfigFile
from console.gateway.guarding import RULES
from console.people.audit.models import Entry
from console.people.audit.undo import PAGES
from tests.console import test_audit_coverage
from tests.console.api.conftest import Program
from tests.console.test_audit_coverage import UNDONE
from tools import api_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

pytestmark = pytest.mark.django_db

# pytest finds a fixture by its name in this module.
world = test_audit_coverage.world

ACCOUNT = BrokerAccount("order-service", topic_perms={"Orders": "PUB"})


def without(scope: str) -> list[str]:
    """Return all scopes that don't cover the given one."""
    return [each for each in every_scope() if not has([each], scope)]


def path_of(address: str) -> str:
    """Return an address with a value for each parameter."""
    return re.sub(r"[{<][^}>]*[}>]", "1", address).removeprefix("/api/v1")


def addresses(patterns: Iterable[Any], before: str = "/") -> Iterator[str]:
    """Yield each address of the URLconf, in the notation of operations."""
    for each in patterns:
        here = f"{before}{each.pattern}"
        if isinstance(each, URLResolver):
            yield from addresses(each.url_patterns, here)
        else:
            yield here.replace("<", "{").replace(">", "}")


def test_the_api_page_lists_each_operation_with_its_scopes_and_permission() -> None:
    _before, found, _after = api_table.parts_of(api_table.PAGE.read_text())

    assert found == api_table.table(), "run python -m tools.api_table --write"


def test_the_api_serves_only_its_documented_addresses_and_methods(
    admin_account, brokers, unhurried
) -> None:
    program = Program(admin_account, every_scope())
    there = {each for each in addresses(get_resolver().url_patterns) if each.startswith(BELOW)}
    known = {(each.method, each.path) for each in OPERATIONS.values()}

    # The root that Ninja adds, which answers nothing, and the schema.
    assert there - {BELOW, f"{BELOW}openapi.json"} == {path for _method, path in known}
    for path in there:
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            if (method, path) not in known and (method, path) != ("GET", f"{BELOW}openapi.json"):
                assert program.ask(method, path_of(path)).status_code in (403, 404, 405)


@pytest.fixture
def unhurried(settings) -> None:
    settings.TREBUCHET_API_REQUESTS_A_MINUTE = 10_000


def test_a_token_without_a_scope_of_an_operation_is_rejected(
    admin_account, brokers, unhurried
) -> None:
    program = Program(admin_account, every_scope())
    let_in = []
    for operation in OPERATIONS.values():
        for scope in operation.scopes:
            program.narrow(without(scope))
            answer = program.ask(operation.method, path_of(operation.path), {})
            document = answer.json().get("detail") if answer.status_code == 403 else ""
            if document != f"This token doesn't have the scope {scope}.":
                let_in.append((operation.name, scope))

    assert let_in == []
    assert not Entry.objects.filter(outcome="done").exists()


def test_scopes_that_outlive_a_token_need_more_than_everything(
    admin_account, brokers, harmless, unhurried
) -> None:
    program = Program(admin_account, [f"{EVERYTHING}:read", f"{EVERYTHING}:write"])
    refused = {
        each.name
        for each in OPERATIONS.values()
        if each.writes
        and "have the scope people:write"
        in program.ask(each.method, path_of(each.path), {}).content.decode()
    }

    assert refused == {
        each.name for each in OPERATIONS.values() if each.writes and each.area == "people"
    }


def test_broker_accounts_belong_to_the_users_area() -> None:
    of_accounts = {each.name for each in OPERATIONS.values() if "/broker-a" in each.path}

    assert len(of_accounts) == 5
    assert {OPERATIONS[name].area for name in of_accounts} == {"people"}


def test_a_token_for_everything_does_not_make_a_broker_administrator(
    admin_account, brokers
) -> None:
    brokers.access[ADDRESS] = BrokerAccess(True, (ACCOUNT,), is_described=True)
    program = Program(admin_account, [f"{EVERYTHING}:write"])
    body = {"admin": True, "secret": "correct-horse-battery"}

    assert program.ask("PUT", "/broker-accounts/mallory", body).status_code == 403
    assert [each.access_key for each in brokers.access[ADDRESS].accounts] == ["order-service"]


EXAMPLES = {
    "config": SimpleNamespace(topic="Orders", group="billing"),
    "wanted": SimpleNamespace(topic="Orders", group="billing"),
    "queue": SimpleNamespace(topic="Orders"),
    "half": SimpleNamespace(topic="Orders", queue=SimpleNamespace(topic="Orders")),
    "outgoing": [SimpleNamespace(queue=SimpleNamespace(topic="Orders"))],
    "groups": ["billing"],
    "topic": "Orders",
    "group": "billing",
}
FREE_WITHOUT = {
    # Figures; a member's threads need more.
    ("groups", "running"),
    # Each message or event of the answer is checked.
    ("browse", "by_id"),
    ("recorder", "recorded"),
}


def test_a_token_without_scopes_reaches_no_broker(brokers) -> None:
    """The guard in front of the brokers rejects any operation that gets this far."""
    administrator = Rights(is_all=True, scopes=frozenset())
    let_in = []
    for way, call in ((way, call) for way, calls in RULES.items() for call in calls):
        code = RULES[way][call].__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        positional = [EXAMPLES.get(name, "x") for name in names[: code.co_argcount]]
        named = {name: EXAMPLES.get(name, False) for name in names[code.co_argcount :]}
        if not list(RULES[way][call](*positional, **named)):
            let_in.append((way, call))
            continue
        with acts_for(lambda: administrator), pytest.raises(ScopeMissingError):
            getattr(getattr(gateway(), way), call)(*positional, **named)

    assert set(let_in) == FREE_WITHOUT


def test_each_action_on_a_topic_or_group_needs_a_scope() -> None:
    assert set(Action) - set(OF_ACTIONS) == {Action.OPERATE}
    assert set(OF_ACTIONS.values()) <= set(every_scope())


def test_dead_letters_are_messages_of_both_areas() -> None:
    rights = Rights(is_all=True, scopes=frozenset({"dead-letters:read"}))

    assert rights.may(Action.READ, "%DLQ%billing")
    assert not rights.may(Action.READ, "Orders")
    assert not rights.may(Action.UNMASK, "%DLQ%billing")
    assert Rights(is_all=True, scopes=frozenset({"messages:read"})).may(Action.READ, "%DLQ%x")


def test_a_tokens_request_never_has_a_sessions_permissions(admin_account) -> None:
    request = RequestFactory().get("/")
    request.user = admin_account
    assert rights_on(request).may(Action.TOPIC, "Orders")

    request.token_scopes = frozenset({"topics:read"})  # type: ignore[attr-defined]

    assert not rights_on(request).may(Action.TOPIC, "Orders")
    assert rights_on(request).of_owner.may(Action.TOPIC, "Orders")


def test_each_change_that_can_be_undone_has_its_scope() -> None:
    assert {each.partition(".")[0] for each in PAGES} == set(UNDO_SCOPES)
    assert set(UNDO_SCOPES.values()) <= set(every_scope())


EXAMPLE_OF = {example[0]: example for example in UNDONE.values()}
KINDS = {each.partition(".")[0]: each for each in EXAMPLE_OF}


def an_entry(action: str) -> Entry:
    """Return an audit entry from `world`, or one of its kind."""
    kind = action.partition(".")[0]
    example = EXAMPLE_OF.get(action) or EXAMPLE_OF.get(KINDS.get(kind, ""))
    _action, subject, before, after = example or ("", "billing Orders", {}, {})
    return Entry.objects.create(
        actor_name="ada",
        action=action,
        subject=subject,
        outcome=Entry.Outcome.DONE,
        before=before,
        after=after,
    )


@pytest.mark.parametrize("action", sorted(PAGES))
def test_undo_needs_the_scope_of_the_change(action, admin_account, world, brokers) -> None:
    scope = UNDO_SCOPES[action.partition(".")[0]]
    entry = an_entry(action)
    topics, groups = dict(brokers.topic_configs), dict(brokers.group_configs)

    for scopes in (["audit:write"], without(scope)):
        program = Program(admin_account, scopes)
        for path in (f"/audit/{entry.pk}/undo", f"/audit/{entry.pk}/undo?dry_run=true"):
            answer = program.post(path)
            assert answer.status_code == 403
            assert scope in answer.json()["detail"]
    assert (brokers.topic_configs, brokers.group_configs) == (topics, groups)


@pytest.mark.parametrize("action", sorted(EXAMPLE_OF))
def test_undo_needs_no_more_than_the_scope_of_the_change(action, admin_account, world) -> None:
    entry = an_entry(action)

    undone = Program(admin_account).post(f"/audit/{entry.pk}/undo?accept=true")

    assert undone.status_code == 200, undone.content


@pytest.mark.parametrize("action", sorted(PAGES))
def test_undo_needs_the_permission_of_the_change(
    action, reader_account, limited_account, brokers
) -> None:
    brokers.add_topic("Orders")
    brokers.add_group("billing")
    entry = an_entry(action)
    elsewhere = CustomRole.objects.create(
        name="elsewhere",
        actions=[each.value for each in Action],
        topics=["mine-*"],
        groups=["mine-*"],
    )
    elsewhere.members.add(limited_account)
    before = dict(brokers.topic_configs), dict(brokers.group_configs)

    for owner in (reader_account, limited_account):
        answer = Program(owner, [*every_scope()]).post(f"/audit/{entry.pk}/undo")
        # A file's undo is open to anyone who can change some file; its entries are checked.
        assert answer.status_code == 403 or (action, owner) == ("config.apply", limited_account)

    assert (brokers.topic_configs, brokers.group_configs) == before


def test_the_audit_scope_alone_deletes_no_topic(admin_account, brokers) -> None:
    made = Program(admin_account, ["topics:write"]).post("/topics", {"topic": "New"}).json()

    alone = Program(admin_account, ["audit:write"])
    assert alone.post(f"/audit/{made['entry']}/undo").status_code == 403
    assert "New" in brokers.topic_configs

    both = Program(admin_account, ["audit:write", "topics:write"])
    assert both.post(f"/audit/{made['entry']}/undo").status_code == 200
    assert "New" not in brokers.topic_configs


FILES = [
    (ConfigFile.TOPICS, "topics:write"),
    (ConfigFile.GROUPS, "groups:write"),
    (ConfigFile.OFFSETS, "offsets:write"),
    (ConfigFile.FILTERS, "groups:write"),
]


@pytest.mark.parametrize(("file", "scope"), FILES)
def test_a_file_has_the_scope_of_its_entries(file, scope, admin_account, brokers) -> None:
    brokers.add_topic("Orders")
    brokers.add_group("billing")
    path = f"/files/broker-a/{file.value}"
    shown = Program(admin_account, ["brokers:read"]).get(path).json()
    document = shown.get("document", shown)
    before = dict(brokers.topic_configs), dict(brokers.group_configs)

    alone = Program(admin_account, without(scope)).ask("PUT", path, document)
    enough = Program(admin_account, ["brokers:write", scope])

    assert alone.status_code == 403
    assert scope in alone.json()["detail"]
    assert (brokers.topic_configs, brokers.group_configs) == before
    assert enough.ask("PUT", f"{path}?dry_run=true", document).status_code != 403


def test_a_replay_to_the_messages_own_topics_needs_the_send_scope(
    admin_account, brokers, harmless
) -> None:
    body = {"target": "origin", "rate": 10}
    path = "/dead-letters/billing/replays?dry_run=true"

    alone = Program(admin_account, ["dead-letters:write"])
    both = Program(admin_account, ["dead-letters:write", "messages:write"])

    assert alone.post(path, body).status_code == 403
    assert alone.post(path, {**body, "target": "retry"}).status_code == 200
    assert both.post(path, body).status_code == 200


def test_a_message_that_is_not_a_dead_letter_is_redelivered_with_its_own_scope(
    admin_account, brokers
) -> None:
    brokers.add_topic("Orders")
    brokers.put("Orders", 0, 1_000)
    path = "/deliveries/broker-a/0/0/Orders?group=billing&client_id=c"

    alone = Program(admin_account, ["dead-letters:write"]).post(path)

    assert alone.status_code == 403
    assert "messages:read" in alone.json()["detail"]


SCHEDULE = {"report": "traffic", "name": "daily", "kind": "cron", "cron": "0 6 * * *"}


def test_choosing_a_schedules_channels_needs_the_alerts_scope(
    admin_account, operator_account, brokers, harmless
) -> None:
    path = "/report-schedules"
    alone = Program(admin_account, ["reports:write"])
    both = Program(admin_account, ["reports:write", "alerts:write"])
    operator = Program(operator_account, every_scope())

    refused = alone.post(path, {**SCHEDULE, "channels": [1]})
    of_operator = operator.post(path, {**SCHEDULE, "channels": [1]})
    made = alone.post(path, SCHEDULE)
    chosen = both.patch(f"{path}/{made.json()['id']}", {"channels": []})

    assert [each.status_code for each in (refused, of_operator)] == [403, 403]
    assert "alerts:write" in refused.json()["detail"]
    assert [each.status_code for each in (made, chosen)] == [200, 200]
    # A program that changes one value may send the existing ones along.
    assert alone.patch(f"{path}/{made.json()['id']}", {"channels": []}).status_code == 200


def test_deleting_a_role_also_removes_its_tokens_permissions(operator_account, brokers) -> None:
    program = Program(operator_account, every_scope())
    entry = program.post("/topics", {"topic": "New"}).json()["entry"]

    give_role(operator_account, Role.VIEWER)

    assert program.post(f"/audit/{entry}/undo").status_code == 403
    assert json.loads(program.get("/topics").content)["items"]
