"""The WebSocket of the Live page: access, accepted messages, and sent messages."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from channels.db import database_sync_to_async
from channels.routing import URLRouter
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser
from django.contrib.sessions.backends.db import SessionStore
from django.test import Client
from django.urls import path
from uvicorn.protocols.utils import ClientDisconnected

from console.accounts.models import CustomRole
from console.accounts.roles import Role, give_role
from console.accounts.session_watch import SessionWatch
from console.messages.tracing.bridge import VIEWERS_PER_USER_MAX, TraceBridge, Viewer
from console.messages.tracing.consumers import (
    CLOSE_FAILED,
    CLOSE_SIGNED_OUT,
    CLOSE_TOO_BIG,
    CLOSE_TOO_MANY,
    INPUT_BYTES_MAX,
    TraceConsumer,
    closing_on_failure,
)
from console.messages.tracing.sessions import session_watch
from console.people.masking.models import MaskingRule
from tests.console.socket_client import SocketClient
from tests.console.tracing_fakes import TracedBroker, an_event
from tests.support.long_timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def brokers() -> TracedBroker:
    return TracedBroker()


@pytest.fixture
async def bridge(brokers: TracedBroker) -> AsyncIterator[TraceBridge]:
    bridge = brokers.bridge(batch_every_s=0)
    yield bridge
    await bridge.shutdown()


def sign_in() -> tuple[Any, SessionStore]:
    user = get_user_model().objects.create_user("reader", password="correct horse battery")
    client = Client()
    client.force_login(user)
    return user, SessionStore(session_key=client.session.session_key)


def socket_of(
    bridge: TraceBridge,
    user: Any,
    session: SessionStore | None,
    **scope: Any,
) -> SocketClient:
    sessions = SessionWatch(every_s=0.01, shared=session_watch.shared)
    route = path("live/stream/", TraceConsumer.as_asgi(bridge=bridge, sessions=sessions))
    return SocketClient(URLRouter([route]), "/live/stream/", user=user, session=session, **scope)


async def test_a_stranger_is_rejected(bridge: TraceBridge, brokers: TracedBroker) -> None:
    socket = socket_of(bridge, AnonymousUser(), None)

    accepted = await socket.connect()

    assert not accepted
    assert not brokers.opened


async def test_a_viewer_sees_events_that_match_its_filter(
    bridge: TraceBridge, brokers: TracedBroker
) -> None:
    user, session = await database_sync_to_async(sign_in)()
    socket = socket_of(bridge, user, session)
    await socket.connect()
    await brokers.until_watched()

    await socket.send(json.dumps({"type": "filter", "round": 7, "topic": "payments"}))
    await brokers.until(lambda: len(brokers.opened[0].subscriptions) == 2)
    brokers.push([an_event(topic="orders"), an_event(topic="payments", queueOffset="8")])
    frame = await socket.frame("events")
    while not frame["events"]:
        frame = await socket.frame("events")

    assert [event["queueOffset"] for event in frame["events"]] == ["8"]
    assert (frame["seen"], frame["round"]) == (1, 7)
    await socket.disconnect()


async def test_closing_a_page_ends_the_watch(bridge: TraceBridge, brokers: TracedBroker) -> None:
    user, session = await database_sync_to_async(sign_in)()
    socket = socket_of(bridge, user, session)
    await socket.connect()
    await brokers.until_watched()

    await socket.disconnect()

    assert not brokers.open_watches


async def test_a_page_with_a_broken_connection_misses_nothing(
    bridge: TraceBridge, brokers: TracedBroker
) -> None:
    user, session = await database_sync_to_async(sign_in)()
    first, stranger, second = (socket_of(bridge, each, session) for each in (user, user, user))
    await first.connect()
    await brokers.until_watched()
    await first.send(json.dumps({"type": "filter", "round": 7, "topic": "orders"}))
    token = (await first.frame("viewer"))["token"]
    await brokers.until(lambda: len(brokers.opened[0].subscriptions) == 2)

    await first.disconnect(code=1006)
    brokers.push([an_event(topic="orders", queueOffset="8")])
    await stranger.connect()
    await stranger.send(json.dumps({"type": "resume_viewer", "token": "guessed", "upTo": 0}))
    assert (await stranger.frame("viewer"))["token"] != token
    await second.connect()
    await second.send(json.dumps({"type": "resume_viewer", "token": token, "upTo": 0}))

    assert (await second.frame("viewer"))["token"] == token
    frame = await second.frame("events")
    while not frame["events"]:
        frame = await second.frame("events")
    assert [event["queueOffset"] for event in frame["events"]] == ["8"]
    await stranger.disconnect()
    await second.disconnect()
    assert not brokers.open_watches


async def test_a_page_that_does_not_reconnect_is_dropped(brokers: TracedBroker) -> None:
    bridge = brokers.bridge(batch_every_s=0, parked_s=0)
    user, session = await database_sync_to_async(sign_in)()
    socket = socket_of(bridge, user, session)
    await socket.connect()
    await brokers.until_watched()
    await socket.send(json.dumps({"type": "clear", "round": 1}))
    await socket.frame("viewer")

    await socket.disconnect(code=1006)

    await brokers.until(lambda: not brokers.open_watches)


async def test_an_invalid_request_gets_an_explanation(
    bridge: TraceBridge, brokers: TracedBroker
) -> None:
    user, session = await database_sync_to_async(sign_in)()
    socket = socket_of(bridge, user, session)
    await socket.connect()

    sentences = []
    for text in ("{", "[]", '{"type":"drop table"}', '{"type":"clear","round":-1}'):
        await socket.send(text)
        sentences.append((await socket.frame("problem"))["message"])

    assert all(sentence.endswith(".") for sentence in sentences)
    await socket.disconnect()


async def test_a_message_above_64_kib_ends_the_socket(
    bridge: TraceBridge, brokers: TracedBroker
) -> None:
    user, session = await database_sync_to_async(sign_in)()
    socket = socket_of(bridge, user, session)
    await socket.connect()

    await socket.send("x" * (INPUT_BYTES_MAX + 1))

    assert await socket.closed_with() == CLOSE_TOO_BIG


async def test_an_ending_session_ends_the_socket(
    bridge: TraceBridge, brokers: TracedBroker
) -> None:
    user, session = await database_sync_to_async(sign_in)()
    socket = socket_of(bridge, user, session)
    await socket.connect()

    await database_sync_to_async(SessionStore(session_key=session.session_key).delete)()

    assert await socket.closed_with() == CLOSE_SIGNED_OUT


def limit_to(user: Any, topic: str) -> None:
    give_role(user, Role.LIMITED)
    role = CustomRole.objects.create(name="one topic", actions=["message.see"], topics=[topic])
    role.members.add(user)


async def test_revoked_permissions_apply_to_the_open_watch(
    bridge: TraceBridge, brokers: TracedBroker
) -> None:
    user, session = await database_sync_to_async(sign_in)()
    socket = socket_of(bridge, user, session)
    await socket.connect()
    await brokers.until_watched()

    async def seen(number: int) -> set[str]:
        """Push an event of each topic; return the topics that arrive."""
        topics = ("payments", "orders")
        brokers.push([an_event(topic=each, queueOffset=str(number)) for each in topics])
        found: set[str] = set()
        while "orders" not in found:
            frame = await socket.frame("events")
            found |= {event["topic"] for event in frame["events"]}
        return found

    assert await seen(0) == {"payments", "orders"}
    await database_sync_to_async(limit_to)(user, "orders")
    async with asyncio.timeout(PATIENCE_S):
        number = 1
        while "payments" in await seen(number):
            number += 1
    assert await seen(number + 1) == {"orders"}
    await socket.disconnect()


async def test_the_twenty_first_window_is_rejected_with_an_explanation(
    bridge: TraceBridge, brokers: TracedBroker
) -> None:
    user, session = await database_sync_to_async(sign_in)()
    for _ in range(VIEWERS_PER_USER_MAX):
        bridge.join(Viewer(user.pk))
    socket = socket_of(bridge, user, session)

    await socket.connect()

    assert "too many windows" in (await socket.frame("problem"))["message"]
    assert await socket.closed_with() == CLOSE_TOO_MANY


def masks(kind: str, what: str, topics: list[str]) -> None:
    MaskingRule.objects.create(name="secrets", topics=topics, kind=kind, what=what)


@pytest.mark.parametrize(
    ("kind", "what", "topics", "fields", "is_refused"),
    [
        ("property", "ssn", ["*"], {"property": "ssn=4711"}, True),
        ("property", "ssn", ["*"], {"property": "ssn=4711", "topic": "orders"}, True),
        ("property", "ssn", ["orders"], {"property": "ssn=4711"}, True),
        ("property", "ssn", ["orders"], {"property": "ssn=4711", "topic": "ord*"}, True),
        ("property", "ssn", ["orders"], {"property": "ssn=4711", "topic": "%DLQ%billing"}, True),
        (
            "property",
            "ssn",
            ["orders"],
            {"property": "ssn=1", "topic": "SCHEDULE_TOPIC_XXXX"},
            True,
        ),
        ("pattern", "[0-9]{4}", ["*"], {"property": "phone=4711"}, True),
        ("pattern", "[+]49", ["*"], {"property": "phone=%2B49170"}, True),
        ("property", "ssn", ["orders"], {"property": "ssn=4711", "topic": "payments"}, False),
        ("property", "ssn", ["*"], {"property": "region=eu"}, False),
        ("pattern", "[0-9]{4}", ["*"], {"property": "region=eu"}, False),
        ("path", "$.ssn", ["*"], {"property": "ssn=4711"}, False),
    ],
)
async def test_no_filter_reveals_masked_values(
    kind, what, topics, fields, is_refused, bridge: TraceBridge, brokers: TracedBroker
) -> None:
    user, session = await database_sync_to_async(sign_in)()
    await database_sync_to_async(masks)(kind, what, topics)
    socket = socket_of(bridge, user, session)
    await socket.connect()
    await brokers.until_watched()

    await socket.send(json.dumps({"type": "filter", "round": 1, **fields}))

    if is_refused:
        problem = (await socket.frame("problem"))["message"]
        assert problem.startswith("The masking rule secrets hides property")
        assert len(brokers.opened[0].subscriptions) == 1
    else:
        await brokers.until(lambda: len(brokers.opened[0].subscriptions) == 2)
    await socket.disconnect()


async def test_a_new_rule_disables_a_filter_on_hidden_fields(
    bridge: TraceBridge, brokers: TracedBroker
) -> None:
    user, session = await database_sync_to_async(sign_in)()
    socket = socket_of(bridge, user, session)
    await socket.connect()
    await brokers.until_watched()
    await socket.send(json.dumps({"type": "filter", "topic": "orders", "property": "ssn=4711"}))
    await brokers.until(lambda: len(brokers.opened[0].subscriptions) == 2)

    await database_sync_to_async(masks)("property", "ssn", ["*"])

    assert "hides property ssn" in (await socket.frame("problem"))["message"]
    await brokers.until(lambda: len(brokers.opened[0].subscriptions) == 3)
    (expected,) = brokers.opened[0].subscriptions[-1].values()
    assert (expected.topic, expected.named) == ("orders", None)
    await socket.disconnect()


@pytest.mark.parametrize("what", ["take", "rights"])
async def test_a_socket_with_a_failed_task_is_closed_so_that_the_page_reconnects(
    bridge: TraceBridge, brokers: TracedBroker, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def fail(*_: object) -> Any:
        raise KeyError("of a bug")

    monkeypatch.setattr(Viewer if what == "take" else SessionWatch, what, fail)
    user, session = await database_sync_to_async(sign_in)()
    socket = socket_of(bridge, user, session)

    assert await socket.connect()

    assert await socket.closed_with() == CLOSE_FAILED
    await socket.disconnect(CLOSE_FAILED)


@pytest.mark.parametrize("error", [ConnectionResetError, ClientDisconnected])
async def test_a_leaving_browser_is_not_a_failure(
    error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    closed: list[int] = []

    async def close(code: int) -> None:
        closed.append(code)

    async def send() -> None:
        raise error

    await closing_on_failure(SimpleNamespace(close=close), send())

    assert (closed, caplog.records) == ([], [])
