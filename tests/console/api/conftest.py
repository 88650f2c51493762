"""Programs in front of the fake broker: a token for each role."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from django.core.cache import caches
from django.test import Client

from console.api.scopes import EVERYTHING, READ, WRITE
from console.api.tokens import made_token
from console.dead_letters import replaying
from console.demo import views as demo_views
from console.gateway.moment import now_ms
from console.reports import health, tasks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.contrib.auth.models import User

    from console.gateway.fakes.broker import FakeBroker

WHOLE = (f"{EVERYTHING}:{READ}", f"{EVERYTHING}:{WRITE}", f"people:{WRITE}")


class Program:
    """Sends requests of the API with a token."""

    def __init__(self, owner: User, scopes: Sequence[str] = WHOLE, days: int = 30) -> None:
        self.token, self.text = made_token(owner, f"of {owner}", scopes, days, now_ms())
        self._client = Client()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Send a request below /api/v1; headers are named with low lines."""
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


class FakeDemo:
    """A demo that starts and stops nothing."""

    def start(self) -> bool:
        return True

    def stop(self) -> bool:
        return False


@pytest.fixture
def harmless(brokers: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A world in which whatever is asked starts no process and sends no replay."""
    monkeypatch.setattr(replaying, "launch", lambda _run: None)
    monkeypatch.setattr(health, "problems", list)
    monkeypatch.setattr(tasks.run_report, "apply_async", lambda **_how: None)
    monkeypatch.setattr(demo_views, "demo_process", FakeDemo())
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
