from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.remoting.dispatch import Dispatcher
from broker_core.remoting.overload import PULL_CODES, SEND_CODES, TICK_S, Overload
from tests.support.clock import ManualClock
from tests.unit.remoting.test_dispatch import FakeConnection

if TYPE_CHECKING:
    from broker_core.remoting.connection import Connection

SEND_MS, PULL_MS, DISK_MS = 200.0, 5_000.0, 1_000.0


def served(request: RemotingCommand, _: Connection) -> RemotingCommand:
    return request.answer(ResponseCode.SUCCESS)


class Served:
    """A server without sockets."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.connections: tuple[object, ...] = ()
        self.override = dispatcher.override


class Watched:
    """A table of handlers with the overload rules."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.is_on = True
        self.is_deficient = False
        self.worked_s = 0.0
        self.dispatcher = Dispatcher(
            {RequestCode.SEND_MESSAGE: served, RequestCode.PULL_MESSAGE: served}
        )
        self.overload = Overload(
            self.clock,
            [Served(self.dispatcher)],
            lambda: [(SEND_CODES, SEND_MS), (PULL_CODES, PULL_MS)] if self.is_on else [],
            lambda: self.worked_s,
            lambda: 0.0,
            lambda: DISK_MS,
            lambda: self.is_deficient,
        )

    def late(self, *measurements_ms: float) -> None:
        for late_ms in measurements_ms:
            self.overload.look(late_ms, 0.0)

    def code_of(self, code: int) -> bytes:
        request = RemotingCommand(code, 0, 1, 407, "JAVA")
        answer = self.dispatcher.dispatch(request, cast("Connection", FakeConnection()))
        assert answer is not None
        return answer


@pytest.fixture
def watched() -> Watched:
    return Watched()


def is_refused(answer: bytes) -> bool:
    return b'"code":2,' in answer


def test_a_loop_that_was_late_once_rejects_nothing(watched: Watched) -> None:
    watched.late(3_000.0)

    assert not is_refused(watched.code_of(RequestCode.SEND_MESSAGE))


def test_a_loop_that_stays_late_rejects_requests_that_must_not_wait(watched: Watched) -> None:
    watched.late(3_000.0, 250.0)

    answer = watched.code_of(RequestCode.SEND_MESSAGE)
    assert is_refused(answer)
    assert b"[TIMEOUT_CLEAN_QUEUE]broker busy" in answer
    assert b"period in queue: 250ms" in answer
    assert not is_refused(watched.code_of(RequestCode.PULL_MESSAGE))
    assert watched.overload.refused == 1


def test_everything_is_served_again_once_the_loop_keeps_up(watched: Watched) -> None:
    watched.late(6_000.0, 6_000.0)
    assert is_refused(watched.code_of(RequestCode.PULL_MESSAGE))

    watched.late(0.0)

    assert not is_refused(watched.code_of(RequestCode.PULL_MESSAGE))
    assert not is_refused(watched.code_of(RequestCode.SEND_MESSAGE))


def test_a_slow_put_is_immediately_attributed_to_the_disk(watched: Watched) -> None:
    watched.overload.look(0.0, 1_200.0)

    answer = watched.code_of(RequestCode.SEND_MESSAGE)
    assert b"[PCBUSY_CLEAN_QUEUE]" in answer
    assert b"period in queue: 1200ms" in answer
    assert not is_refused(watched.code_of(RequestCode.PULL_MESSAGE))


def test_the_rule_can_be_switched_off(watched: Watched) -> None:
    watched.is_on = False
    watched.late(9_000.0, 9_000.0)

    assert not is_refused(watched.code_of(RequestCode.SEND_MESSAGE))


@pytest.mark.parametrize("is_on", [True, False])
def test_an_empty_pool_rejects_sends_until_a_buffer_returns(
    watched: Watched, *, is_on: bool
) -> None:
    watched.is_on, watched.is_deficient = is_on, True
    watched.late(0.0)

    answer = watched.code_of(RequestCode.SEND_MESSAGE)
    assert is_refused(answer)
    assert b"[REJECTREQUEST]system busy, start flow control for a while" in answer
    assert not is_refused(watched.code_of(RequestCode.PULL_MESSAGE))

    watched.is_deficient = False
    watched.late(0.0)
    assert not is_refused(watched.code_of(RequestCode.SEND_MESSAGE))


@pytest.mark.parametrize(("share", "refuses"), [(1.0, True), (0.1, False)])
async def test_a_late_timer_counts_only_while_the_loop_was_busy(
    watched: Watched, share: float, refuses: bool
) -> None:
    watched.overload.start()
    for _ in range(2):
        # The loop was blocked, so the timer runs 400 ms late.
        late_ms = 400
        watched.worked_s += share * late_ms / 1000
        watched.clock.hold_ms(int(TICK_S * 1000) + late_ms)
        watched.clock.advance_ms(0)

    assert is_refused(watched.code_of(RequestCode.SEND_MESSAGE)) is refuses
    watched.overload.shutdown()
