"""What brokers of a set ask each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from broker_core.errors import RemotingTimeoutError, ReplicationError
from broker_core.ha.peers import Peers, SetMember, WithoutEpochsError
from broker_core.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.client import RemotingClient

OWN = SetMember("c", "b", "10.0.0.1:10911", "10.0.0.1:10912")
PEER = "10.0.0.2:10911"
STATE = (
    b'{"clusterName":"c","brokerName":"%s","brokerId":0,"brokerRole":"ASYNC_MASTER",'
    b'"haServerAddr":"","minOffset":0,"maxOffset":9,"epochs":%s}'
)


class FakeClient:
    """Answers every request alike."""

    def __init__(self, code: int = 0, body: bytes = b"", *, is_silent: bool = False) -> None:
        self.closed: list[str] = []
        self._code = code
        self._body = body
        self._is_silent = is_silent

    async def request(
        self, address: str, command: RemotingCommand, timeout_s: float
    ) -> RemotingCommand:
        if self._is_silent:
            raise RemotingTimeoutError(f"{address} does not answer")
        return command.answer(self._code, "because", body=self._body)

    def close(self, address: str) -> None:
        self.closed.append(address)


def peers(client: FakeClient) -> Peers:
    return Peers(cast("RemotingClient", client), OWN, tuple)


async def test_a_peer_says_its_epochs() -> None:
    body = STATE % (b"b", b'[{"epoch":2,"startOffset":5}]')

    state = await peers(FakeClient(body=body)).state_of(PEER)

    assert (state.newest, state.max_offset, state.is_slave) == (2, 9, False)


async def test_a_connection_that_is_silent_is_made_anew() -> None:
    client = FakeClient(is_silent=True)

    with pytest.raises(RemotingTimeoutError):
        await peers(client).state_of(PEER)

    assert client.closed == [PEER]


async def test_a_broker_without_epochs_is_told_apart() -> None:
    with pytest.raises(WithoutEpochsError):
        await peers(FakeClient(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)).state_of(PEER)


@pytest.mark.parametrize(
    ("code", "body", "reason"),
    [
        (1, b"", "does not tell its epochs: 1 because"),
        (0, b"", "cannot be read"),
        (0, b"[]", "cannot be read"),
        (0, STATE % (b"other", b"[]"), "is other, not b"),
        (0, STATE % (b"b", b'[{"epoch":2,"startOffset":5},{"epoch":1,"startOffset":6}]'), "read"),
    ],
)
async def test_a_peer_that_makes_no_sense_is_refused(code: int, body: bytes, reason: str) -> None:
    with pytest.raises(ReplicationError, match=reason):
        await peers(FakeClient(code, body)).state_of(PEER)


async def test_who_does_not_answer_is_left_out() -> None:
    assert await peers(FakeClient(is_silent=True)).states_of([PEER, OWN.broker_addr]) == {}
