"""The web server's connection limits, without a network: slots, phases, proxies."""

from __future__ import annotations

from ipaddress import ip_network
from typing import TYPE_CHECKING, Any, cast

import pytest
from django.core.exceptions import ImproperlyConfigured

from console.env import Environment
from console.serving.__main__ import trusted_proxies
from console.serving.door import PHASE_SECONDS_MAX, SWEEP_S, Door, Phase

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class ManualLoop:
    """A loop's clock and timers, advanced by hand."""

    def __init__(self) -> None:
        self._now = 0.0
        self._timers: list[tuple[float, Callable[..., None], tuple[object, ...]]] = []

    def time(self) -> float:
        return self._now

    def call_later(self, delay: float, callback: Callable[..., None], *arguments: object) -> object:
        self._timers.append((self._now + delay, callback, arguments))
        return object()

    def pass_time(self, seconds: float) -> None:
        until = self._now + seconds
        while self._timers and self._timers[0][0] <= until:
            self._now, callback, arguments = self._timers.pop(0)
            callback(*arguments)
        self._now = until

    @property
    def is_idle(self) -> bool:
        return not self._timers


class FakeConnection:
    """A connection whose phase is set; its transport records how it was closed."""

    def __init__(self) -> None:
        self.now_in: tuple[Phase, object] = (Phase.HEADERS, None)
        self.ended = ""
        self.transport: Any = self

    def phase(self) -> tuple[Phase, object]:
        return self.now_in

    def close(self) -> None:
        self.ended = "close"
        self.now_in = (Phase.CLOSE, None)

    def abort(self) -> None:
        self.ended = "abort"


class Street:
    """A door, a clock, and clients that connect."""

    def __init__(self, **limits: Any) -> None:
        self.door = Door(**limits)
        self.loop = ManualLoop()

    def come(self, address: str) -> FakeConnection | None:
        connection = FakeConnection()
        loop = cast("asyncio.AbstractEventLoop", self.loop)
        return connection if self.door.admit(connection, address, loop) else None


def test_a_network_has_its_own_places() -> None:
    street = Street(network_connections_max=2)
    first = street.come("10.0.0.1")
    street.come("10.0.0.2")

    assert first is not None
    assert street.come("10.0.0.3") is None
    assert street.come("10.0.1.1") is not None
    street.door.leave(first)
    assert street.come("10.0.0.3") is not None


def test_the_total_has_its_places() -> None:
    street = Street(connections_max=3)
    for number in range(3):
        assert street.come(f"10.0.{number}.1") is not None

    assert street.come("10.0.9.1") is None


def test_a_proxy_may_connect_anybody() -> None:
    proxies = [ip_network("10.0.0.0/30"), ip_network("::1")]
    street = Street(network_connections_max=1, proxies=proxies)

    assert all(street.come("10.0.0.1") for _ in range(5))
    assert all(street.come("::1") for _ in range(5))
    assert street.come("10.0.0.9") is None


def test_a_phase_that_lasts_too_long_ends_the_connection() -> None:
    street = Street()
    connection = street.come("10.0.0.1")
    assert connection is not None

    street.loop.pass_time(PHASE_SECONDS_MAX[Phase.HEADERS] - SWEEP_S)
    assert connection.ended == ""
    street.loop.pass_time(2 * SWEEP_S)
    assert connection.ended == "close"
    street.loop.pass_time(PHASE_SECONDS_MAX[Phase.CLOSE] + 2 * SWEEP_S)
    assert connection.ended == "abort"


def test_a_new_request_gets_the_whole_time_again() -> None:
    street = Street()
    connection = street.come("10.0.0.1")
    assert connection is not None

    for request in range(5):
        connection.now_in = (Phase.HEADERS, request)
        street.loop.pass_time(PHASE_SECONDS_MAX[Phase.HEADERS] - 2 * SWEEP_S)

    assert connection.ended == ""


def test_an_answer_may_take_time() -> None:
    street = Street()
    connection = street.come("10.0.0.1")
    assert connection is not None
    connection.now_in = (Phase.ANSWER, 1)

    street.loop.pass_time(3_600)

    assert connection.ended == ""


def test_an_upgraded_connection_keeps_its_place() -> None:
    street = Street(network_connections_max=1)
    connection, socket = street.come("10.0.0.1"), FakeConnection()
    assert connection is not None

    street.door.hand_over(connection, socket)
    street.door.leave(connection)
    assert street.come("10.0.0.1") is None
    street.door.leave(socket)
    assert street.come("10.0.0.1") is not None


def test_a_server_without_connections_is_not_monitored() -> None:
    street = Street()
    connection = street.come("10.0.0.1")
    assert connection is not None
    street.door.leave(connection)

    street.loop.pass_time(2 * SWEEP_S)

    assert street.loop.is_idle


@pytest.mark.parametrize(
    ("behind", "given", "trusted"),
    [
        ("false", "10.0.0.1", []),
        ("true", "", ["127.0.0.1/32", "::1/128"]),
        ("true", "10.0.0.1, 10.1.0.0/16", ["10.0.0.1/32", "10.1.0.0/16"]),
        ("true", "*", ["0.0.0.0/0", "::/0"]),
    ],
)
def test_only_a_trusted_proxy_decides_a_visitors_address(behind, given, trusted) -> None:
    env = Environment({"TREBUCHET_BEHIND_PROXY": behind, "FORWARDED_ALLOW_IPS": given})

    assert [str(each) for each in trusted_proxies(env)] == trusted


def test_a_proxy_without_an_address_prevents_the_start() -> None:
    env = Environment({"TREBUCHET_BEHIND_PROXY": "true", "FORWARDED_ALLOW_IPS": "proxy.local"})

    with pytest.raises(ImproperlyConfigured, match="FORWARDED_ALLOW_IPS"):
        trusted_proxies(env)
