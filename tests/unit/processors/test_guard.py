from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker_core.errors import RequestRefusedError
from broker_core.processors.guard import guarded
from broker_core.protocol.command import RemotingCommand

PEER: Any = SimpleNamespace(remote_address="127.0.0.1:5000")


class Gate:
    """Lets only code 1 pass; remembers whom it was asked about."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str]] = []

    def authorize(self, request: RemotingCommand, remote_address: str) -> None:
        self.asked.append((request.code, remote_address))
        if request.code != 1:
            raise RequestRefusedError(1, "no")


def test_each_handler_is_asked_for_first() -> None:
    served: list[int] = []
    gate = Gate()
    table = guarded(
        {code: lambda request, _: served.append(request.code) for code in (1, 2)},
        cast("Any", gate),
    )

    table[1](RemotingCommand.request(1), PEER)
    with pytest.raises(RequestRefusedError):
        table[2](RemotingCommand.request(2), PEER)

    assert served == [1]
    assert gate.asked == [(1, "127.0.0.1:5000"), (2, "127.0.0.1:5000")]
