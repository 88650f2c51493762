"""Pops that waited: each gets an answer, even if the next attempt finds nothing or fails."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker_core.errors import RequestRefusedError
from broker_core.pop.checkpoint import QueueKey
from broker_core.pop.results import PopRequest, PopResult
from broker_core.processors import pop
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand


class Connection:
    """Keeps the answers."""

    is_open = is_writable = True

    def __init__(self) -> None:
        self.answers: list[RemotingCommand] = []

    def send(self, answer: RemotingCommand, *, at_once: bool) -> None:
        assert at_once
        self.answers.append(answer)


def waiting(popped: PopResult) -> tuple[Any, Any, Connection]:
    """Return a processor with this result for its next pop, a waiting pop, and its connection."""
    processor: Any = object.__new__(pop.PopProcessor)
    processor.engine = SimpleNamespace(pop=lambda _: popped)
    connection: Any = Connection()
    request = RemotingCommand.request(RequestCode.POP_MESSAGE)
    pop_request = PopRequest(group="g", topic="T", invisible_ms=1)
    key = QueueKey("g", "T", -1)
    return (
        processor,
        pop.WaitingPop(processor, request, connection, key, pop_request, 1_000),
        connection,
    )


def test_a_pop_without_a_result_continues_waiting() -> None:
    _, poll, connection = waiting(PopResult(1, 1))

    assert not poll.attempt(is_last=False)
    assert connection.answers == []


def test_a_pop_that_leaves_messages_unread_makes_the_client_pop_again() -> None:
    _, poll, connection = waiting(PopResult(1, 1, is_partial=True))

    assert poll.attempt(is_last=False)
    assert [each.code for each in connection.answers] == [ResponseCode.POLLING_TIMEOUT]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RequestRefusedError(ResponseCode.SYSTEM_BUSY, "too many"), ResponseCode.SYSTEM_BUSY),
        (OSError("no such disk"), ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_a_failed_read_is_answered(error: Exception, code: ResponseCode) -> None:
    processor, poll, connection = waiting(PopResult(1, 1))

    async def fail() -> PopResult:
        raise error

    await processor.answer_waiting(poll, fail())

    assert [each.code for each in connection.answers] == [code]
