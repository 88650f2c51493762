"""API programs for the fake broker: a token for each role."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from django.core.cache import caches
from django.test import Client
from django.urls import Resolver404, resolve

from console.accounts.scopes import EVERYTHING, READ, WRITE
from console.api.models import ApiToken
from console.api.operations import OPERATIONS
from console.api.tokens import new_token
from console.api.v1.audit import UNDO_SCOPES
from console.broker.files import planning
from console.data.reports import health, tasks
from console.demo import services as demo_services
from console.lib.moment import now_ms
from console.messages.dead_letters import replaying
from console.people.audit.models import Entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.contrib.auth.models import User

    from console.api.operations import Operation
    from console.gateway.fakes.broker import FakeBroker

WHOLE = (f"{EVERYTHING}:{READ}", f"{EVERYTHING}:{WRITE}", f"people:{WRITE}")


class Program:
    """Sends requests of the API with a token.

    Without explicit scopes, the token has for each request only the scopes that the operation
    names, so each test that something works also tests that its scopes are sufficient.
    """

    def __init__(self, owner: User, scopes: Sequence[str] | None = None, days: int = 30) -> None:
        self.is_exact = scopes is None
        others = ApiToken.objects.filter(owner=owner).count()
        name = f"of {owner} {others + 1}" if others else f"of {owner}"
        self.token, self.text = new_token(owner, name, scopes or WHOLE, days, now_ms())
        self._client = Client()

    def narrow(self, scopes: Sequence[str]) -> None:
        """Restrict the token to these scopes."""
        ApiToken.objects.filter(pk=self.token.pk).update(scopes=list(scopes))

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Send a request below /api/v1; write headers with underscores."""
        if self.is_exact:
            self.narrow(scopes_of(method, path, body))
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._client.generic(
            method,
            f"/api/v1{path}",
            b"" if body is None else json.dumps(body),
            content_type="application/json",
            headers={"Authorization": f"Bearer {self.text}", **named},
        )

    def get(self, path: str, **headers: str) -> Any:
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return self.ask("POST", path, body, **headers)

    def patch(self, path: str, body: Any = None, **headers: str) -> Any:
        return self.ask("PATCH", path, body, **headers)

    def delete(self, path: str, **headers: str) -> Any:
        return self.ask("DELETE", path, **headers)


def operation_at(method: str, path: str) -> Operation | None:
    """Return the operation at an address below /api/v1, or None."""
    try:
        found = resolve(urlsplit(f"/api/v1{path}").path)
    except Resolver404:
        return None
    route = f"/{found.route}".replace("<", "{").replace(">", "}")
    # Ninja has one address for all methods of a path.
    same = (each for each in OPERATIONS.values() if (each.method, each.path) == (method, route))
    return next(same, None)


def scopes_of(method: str, path: str, body: Any) -> tuple[str, ...]:
    """Return the scopes that a request needs: its operation's, and the variable ones."""
    operation = operation_at(method, path)
    if operation is None:
        return WHOLE
    if operation.varying:
        return (*operation.scopes, *varying_scopes(operation, path, body))
    return operation.scopes


def varying_scopes(operation: Operation, path: str, body: Any) -> tuple[str, ...]:
    match operation.name:
        case "audit_undo":
            entry = Entry.objects.filter(pk=path.split("/")[2]).first()
            return () if entry is None else undo_scopes_of(entry)
        case "file_change" | "file_restore":
            return tuple(FILE_SCOPES.values())
        case "message_deliver":
            return ("messages:read",)
        case "report_schedule_create" | "report_schedule_change" | "sql_schedule_change":
            return ("alerts:write",) if isinstance(body, dict) and "channels" in body else ()
        case "report_run" | "report_run_csv" | "report_run_parquet" | "report_start":
            # The reports in these tests have only figures.
            return ()
        case "dead_letter_replay":
            is_to_origin = isinstance(body, dict) and body.get("target") == "origin"
            return ("messages:write",) if is_to_origin else ()
        case _other:
            raise AssertionError(f"{operation.name} has varying scopes: say which")


FILE_SCOPES = {
    "topics.json": "topics:write",
    "subscriptionGroup.json": "groups:write",
    "consumerOffset.json": "offsets:write",
}


def undo_scopes_of(entry: Entry) -> tuple[str, ...]:
    of_files = FILE_SCOPES.values() if entry.action == planning.ACTION else ()
    needed = UNDO_SCOPES.get(entry.action.partition(".")[0])
    return (*of_files, *([needed] if needed else []))


class FakeDemo:
    """A demo that starts and stops nothing."""

    def start(self) -> bool:
        return True

    def stop(self) -> bool:
        return False


@pytest.fixture
def harmless(brokers: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A world in which no request starts a process or sends a replay."""
    monkeypatch.setattr(replaying, "launch", lambda _run: None)
    monkeypatch.setattr(health, "problems", list)
    monkeypatch.setattr(tasks.run_report, "apply_async", lambda **_how: None)
    monkeypatch.setattr(demo_services, "demo_process", FakeDemo())
    brokers.add_topic("Orders")
    brokers.add_group("billing")
    brokers.put("Orders", 0, 1_000)
    brokers.give_up("billing", "Orders", 1_000)


@dataclass(frozen=True)
class Programs:
    """One of each role, with all scopes."""

    admin: Program
    operator: Program
    reader: Program


@pytest.fixture(autouse=True)
def fresh_limits() -> None:
    caches["limits"].clear()


@pytest.fixture
def programs(
    brokers: object, admin_account: User, operator_account: User, reader_account: User
) -> Programs:
    return Programs(Program(admin_account), Program(operator_account), Program(reader_account))
