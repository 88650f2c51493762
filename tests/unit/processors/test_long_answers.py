from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, cast

import pytest

from broker_core.errors import RequestRefusedError
from broker_core.listening.turns import Turns
from broker_core.processors.long_answers import WAITING_MAX, LongAnswers
from broker_core.protocol import java_json
from broker_core.protocol.codes import ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.steps import STEPS_AT_ONCE
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    from broker_core.processors.long_answers import Steps
    from broker_core.remoting.connection import Connection


class Peer:
    """A connection whose steps run 1,000 at a time."""

    is_open = True

    def __init__(self) -> None:
        self._turns = Turns(ManualClock())

    def run(self, steps: Steps) -> asyncio.Future[Any]:
        return self._turns.run(steps)


class Work:
    """Steps that count themselves."""

    def __init__(self, count: int, value: Any = None) -> None:
        self.done = 0
        self._count = count
        self._value = value

    def steps(self) -> Steps:
        for _ in range(self._count):
            self.done += 1
            yield
        return self._value


def ask(
    answers: LongAnswers, work: Work, peer: Peer | None = None
) -> RemotingCommand | Awaitable[RemotingCommand]:
    connection = cast("Connection", peer or Peer())
    return answers.answer(RemotingCommand.request(1), connection, work.steps())


async def test_short_requests_are_answered_immediately() -> None:
    table = {java_json.message_queue_key("T", "b", 0): 1}

    answer = ask(LongAnswers(ManualClock()), Work(STEPS_AT_ONCE - 1, {"offsetTable": table}))

    assert isinstance(answer, RemotingCommand)
    assert answer.code == ResponseCode.SUCCESS
    assert answer.body == b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:1}}'


@pytest.mark.parametrize(("value", "body"), [(b"[1]", b"[1]"), ([1], b"[1]"), (None, b"")])
async def test_long_work_yields_to_the_loop(value: Any, body: bytes) -> None:
    work = Work(5 * STEPS_AT_ONCE, value)

    later = ask(LongAnswers(ManualClock()), work)
    assert isinstance(later, Awaitable)
    waiting = asyncio.gather(later)
    steps = [work.done]
    while not waiting.done():
        await asyncio.sleep(0)
        steps.append(work.done)

    assert max(after - before for before, after in itertools.pairwise(steps)) <= STEPS_AT_ONCE
    assert work.done == 5 * STEPS_AT_ONCE
    assert waiting.result()[0].body == body


async def test_long_answers_are_built_one_after_the_other() -> None:
    answers = LongAnswers(ManualClock())
    works = [Work(4 * STEPS_AT_ONCE, [number]) for number in range(3)]
    waiting = asyncio.gather(*(_awaitable(ask(answers, work)) for work in works))
    while not waiting.done():
        await asyncio.sleep(0)
        begun = [work for work in works if STEPS_AT_ONCE < work.done < 4 * STEPS_AT_ONCE]
        assert len(begun) <= 1

    assert [answer.body for answer in waiting.result()] == [b"[0]", b"[1]", b"[2]"]


async def test_a_step_may_reject_early_and_late() -> None:
    def refusing(after: int) -> Steps:
        for _ in range(after):
            yield
        raise RequestRefusedError(ResponseCode.TOPIC_NOT_EXIST, "gone")

    answers, request = LongAnswers(ManualClock()), RemotingCommand.request(1)
    peer = cast("Connection", Peer())
    with pytest.raises(RequestRefusedError):
        answers.answer(request, peer, refusing(0))
    later = answers.answer(request, peer, refusing(2 * STEPS_AT_ONCE))
    with pytest.raises(RequestRefusedError):
        await _awaitable(later)
    assert isinstance(ask(answers, Work(1, {})), RemotingCommand)


async def test_too_many_of_one_client_and_in_total_are_rejected() -> None:
    answers = LongAnswers(ManualClock())
    greedy = Peer()
    waiting = []
    for peer in [greedy] * (WAITING_MAX // 2) + [Peer()] * (WAITING_MAX // 2):
        waiting.append(_awaitable(ask(answers, Work(2 * STEPS_AT_ONCE), peer)))
        if len(waiting) == WAITING_MAX // 2:
            with pytest.raises(RequestRefusedError):
                ask(answers, Work(2 * STEPS_AT_ONCE), greedy)
    with pytest.raises(RequestRefusedError) as refused:
        ask(answers, Work(2 * STEPS_AT_ONCE))
    assert refused.value.code == ResponseCode.SYSTEM_BUSY

    await asyncio.gather(*waiting)

    await _awaitable(ask(answers, Work(2 * STEPS_AT_ONCE), greedy))


async def test_nothing_more_is_created_for_a_lost_client() -> None:
    peer, work = Peer(), Work(10 * STEPS_AT_ONCE)
    later = _awaitable(ask(LongAnswers(ManualClock()), work, peer))
    peer.is_open = False

    await later

    assert work.done == STEPS_AT_ONCE


def _awaitable(answer: RemotingCommand | Awaitable[RemotingCommand]) -> Awaitable[RemotingCommand]:
    assert isinstance(answer, Awaitable)
    return answer
