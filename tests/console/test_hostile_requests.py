"""No request of a signed-in user to any address causes a server error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.urls import Resolver404, resolve, reverse

from console.demo.process import DemoProcess
from console.gateway.fakes.topics import FakeTopics
from tests.console.test_addresses import ALL, url_of

if TYPE_CHECKING:
    import random

pytestmark = [pytest.mark.django_db, pytest.mark.fuzz]

VALUES = (
    *("", " ", "0", "-1", "9" * 30, "1e9", "NaN", "½", "१२", "null", "true", "{}", "[]", "\x00"),
    *("../../etc/passwd", "%2e%2e%2f", "a\nb", "a\x1b[31mb", "<script>alert(1)</script>", "💥" * 9),
    *("' OR 1=1 --", '"; DROP TABLE auth_user', "{{7*7}}", "${jndi:ldap://x}", "x" * 5_000),
    *("2026-13-45", "2026-01-01T99:99", "Orders", "billing", "broker-a", "en", "traffic"),
)
NAMES = (
    *("page", "q", "sort", "order", "topic", "group", "name", "broker", "since", "until", "day"),
    *("next", "language", "username", "password", "report", "cron", "kind", "timestamp", "id"),
    *("old_password", "new_password1", "new_password2", "broker_names", "read_queue_nums", "perm"),
    *("write_queue_nums", "body", "keys", "tags", "count", "confirm", "queue", "offset", "hours"),
)
ROUNDS = 1


@pytest.fixture(autouse=True)
def no_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo's button starts a process."""
    for name in ("start", "stop"):
        monkeypatch.setattr(DemoProcess, name, lambda _: True)


def fields(rng: random.Random) -> dict[str, str]:
    return {rng.choice(NAMES): rng.choice(VALUES) for _ in range(rng.randint(0, 8))}


@pytest.mark.parametrize(("name", "parameters"), ALL, ids=[name for name, _ in ALL])
def test_no_address_fails_on_one_value_in_every_field(
    name: str, parameters: list[str], actors: Any, brokers: Any
) -> None:
    url = url_of(name, parameters)
    for number, value in enumerate(VALUES):
        ask = (actors.admin.get, actors.admin.post)[number % 2]
        assert ask(url, dict.fromkeys(NAMES, value)).status_code < 500, value


@pytest.mark.parametrize("value", VALUES)
def test_a_missing_next_page_is_an_error(value: str, actors: Any, brokers: Any) -> None:
    for name in ("demo:start", "demo:stop", "accounts:sign-in"):
        answer = actors.admin.post(reverse(name), {"next": value})

        assert answer.status_code < 500, name
        assert not answer.get("location", "/").startswith(("//", "http"))


@pytest.mark.parametrize(("name", "parameters"), ALL, ids=[name for name, _ in ALL])
def test_no_address_fails_on_any_input(
    name: str, parameters: list[str], actors: Any, brokers: Any, rng: random.Random
) -> None:
    for _ in range(ROUNDS):
        url = url_of(name, parameters)
        for actor in (actors.stranger, actors.reader, actors.admin):
            # Errors raise here, because a test client passes exceptions on.
            answers = [
                actor.get(url, fields(rng)),
                actor.post(url, fields(rng)),
                actor.post(url, rng.choice(VALUES), content_type="application/json"),
                actor.generic(rng.choice(("PUT", "DELETE", "OPTIONS", "TRACE", "X")), url),
            ]
            codes = [answer.status_code for answer in answers]
            assert max(codes) < 500, (name, codes)


@pytest.mark.parametrize(
    ("name", "parameters"), [pair for pair in ALL if pair[1]], ids=lambda value: str(value)
)
def test_no_address_fails_on_its_own_parameters(
    name: str, parameters: list[str], actors: Any, brokers: Any
) -> None:
    for value in VALUES:
        url = url_of(name, parameters)
        for known in ("Orders", "billing", "traffic", "1", "x"):
            changed = url.replace(f"/{known}/", f"/{value}/")
            if changed == url:
                continue
            try:
                resolve(changed)
            except (Resolver404, ValueError):
                continue
            assert actors.admin.get(changed).status_code < 500, changed


def test_a_failure_is_reported_without_a_traceback(
    actors: Any, brokers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("the inner words of a fault")

    client = actors.admin
    client.raise_request_exception = False
    monkeypatch.setattr(FakeTopics, "all", broken)

    answer = client.get(reverse("topics:list"))

    assert answer.status_code == 500
    text = answer.content.decode()
    assert "the inner words of a fault" not in text
    assert "Traceback" not in text
    assert ".py" not in text
