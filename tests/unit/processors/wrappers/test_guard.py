from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker_core.errors import RequestRefusedError
from broker_core.processors.wrappers.guard import guard_handlers
from broker_core.protocol.command import RemotingCommand


class Peer:
    """The part of a connection that the guard reads."""

    remote_address = "127.0.0.1:5000"

    def __init__(self) -> None:
        self.attributes: dict[str, Any] = {}
        self.is_signed_in = False

    def sign_in(self) -> None:
        assert not self.is_signed_in
        self.is_signed_in = True


PEER: Any = Peer()


class Gate:
    """Allows only code 1; records the callers."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, str]] = []

    def authorize(self, request: RemotingCommand, remote_address: str) -> None:
        self.requests.append((request.code, remote_address))
        if request.code != 1:
            raise RequestRefusedError(1, "no")


def test_each_handler_is_requested_first() -> None:
    served: list[int] = []
    gate = Gate()
    table = guard_handlers(
        {code: lambda request, _: served.append(request.code) for code in (1, 2)},
        cast("Any", gate),
    )

    table[1](RemotingCommand.request(1), PEER)
    with pytest.raises(RequestRefusedError):
        table[2](RemotingCommand.request(2), PEER)

    assert served == [1]
    assert gate.requests == [(1, "127.0.0.1:5000"), (2, "127.0.0.1:5000")]


def test_a_client_with_an_accepted_heartbeat_is_remembered_by_its_account() -> None:
    gate: Any = SimpleNamespace(authorize=lambda _request, _peer: None)
    table = guard_handlers(
        {34: lambda _request, _peer: None, 35: lambda _request, _peer: None}, gate
    )
    connection: Any = Peer()

    table[35](RemotingCommand.request(35, {"AccessKey": "other"}), connection)
    assert connection.attributes == {}
    table[34](RemotingCommand.request(34, {"AccessKey": "mine"}), connection)

    assert connection.attributes == {"account": "mine"}


def test_a_client_with_a_rejected_heartbeat_is_not_remembered() -> None:
    table = guard_handlers({34: lambda _request, _peer: None}, cast("Any", Gate()))
    connection: Any = Peer()

    with pytest.raises(RequestRefusedError):
        table[34](RemotingCommand.request(34, {"AccessKey": "victim"}), connection)

    assert connection.attributes == {}


def test_an_authenticated_request_authenticates_its_connection() -> None:
    table = guard_handlers({code: lambda *_: None for code in (1, 2)}, cast("Any", Gate()))
    connection: Any = Peer()

    with pytest.raises(RequestRefusedError):
        table[2](RemotingCommand.request(2), connection)
    assert not connection.is_signed_in
    for _ in range(2):
        table[1](RemotingCommand.request(1), connection)
    assert connection.is_signed_in
