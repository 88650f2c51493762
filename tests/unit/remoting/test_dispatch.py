from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, cast

import pytest

from broker_core.errors import RequestRefusedError
from broker_core.protocol import command as commands
from broker_core.protocol.codes import ONEWAY_FLAG, SERIALIZE_ROCKETMQ, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.protocol.frame import FRAME_BYTES_MAX
from broker_core.remoting.deferred_answer import DeferredAnswer
from broker_core.remoting.dispatch import Dispatcher

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from broker_core.remoting.connection import Connection


class FakeConnection:
    """Collects the answers that arrive later."""

    turn_began = 7.5

    def __init__(self) -> None:
        self.later: list[Coroutine[Any, Any, bytes | None]] = []
        self.waiting: list[tuple[RemotingCommand, DeferredAnswer]] = []

    def answer_later(
        self, command: RemotingCommand, answer: Coroutine[Any, Any, bytes | None]
    ) -> None:
        self.later.append(answer)

    def answer_when(self, command: RemotingCommand, answer: DeferredAnswer) -> None:
        self.waiting.append((command, answer))


def a_request(code: int = 10, flag: int = 0) -> RemotingCommand:
    return RemotingCommand(code, flag, 7, 407, "JAVA")


def a_binary_request() -> RemotingCommand:
    request = a_request()
    request.serialize_type = SERIALIZE_ROCKETMQ
    return request


def dispatch(
    handlers: dict[int, Any], request: RemotingCommand, connection: FakeConnection
) -> bytes | None:
    return Dispatcher(handlers).dispatch(request, cast("Connection", connection))


def decoded(frame: bytes | None) -> RemotingCommand:
    assert frame is not None
    header_to = 8 + int.from_bytes(frame[5:8], "big")
    return commands.decode(frame[4], frame[8:header_to], frame[header_to:])


def test_an_observer_of_rejections_receives_nothing_else() -> None:
    reports: list[RequestRefusedError] = []
    handlers: dict[int, Any] = {10: refuse, 11: fail, 12: lambda *_: None}
    dispatcher = Dispatcher(handlers, lambda *refusal: reports.append(refusal[2]))

    for code in (10, 11, 12, 13):
        dispatcher.dispatch(a_request(code), cast("Connection", FakeConnection()))

    assert [refusal.remark for refusal in reports] == ["no such topic"]


async def test_the_arrival_time_of_immediately_rejected_requests_is_reported() -> None:
    reports: list[float] = []
    handlers: dict[int, Any] = {10: refuse, 11: lambda *_: wait_then(refuse)}
    dispatcher = Dispatcher(handlers, lambda *refusal: reports.append(refusal[3]))
    connection = FakeConnection()

    for code in (10, 11):
        dispatcher.dispatch(a_request(code), cast("Connection", connection))
    await connection.later[0]

    # By the time the other one is rejected, the connection may have begun another turn.
    assert reports == [7.5, 0.0]


def refuse(*_: object) -> None:
    raise RequestRefusedError(ResponseCode.TOPIC_NOT_EXIST, "no such topic", {"region": "R"})


def fail(*_: object) -> None:
    raise KeyError("secret")


async def wait_then(answer: object) -> Any:
    await asyncio.sleep(0)
    return answer() if callable(answer) else answer


@pytest.mark.parametrize("flag", [0, ONEWAY_FLAG])
def test_an_unknown_code_is_answered_unless_oneway(flag: int) -> None:
    frame = dispatch({}, a_request(99, flag), FakeConnection())

    if flag:
        assert frame is None
    else:
        answer = decoded(frame)
        assert (answer.code, answer.remark) == (3, " request type 99 not supported")
        assert answer.opaque == 7


def test_an_answer_may_be_a_command_a_frame_or_nothing() -> None:
    frame = a_request().answer(0, "ready").encode()
    handlers: dict[int, Any] = {
        1: lambda request, _: request.answer(5),
        2: lambda *_: frame,
        3: lambda *_: None,
    }

    assert decoded(dispatch(handlers, a_request(1), FakeConnection())).code == 5
    assert dispatch(handlers, a_request(2), FakeConnection()) is frame
    assert dispatch(handlers, a_request(3), FakeConnection()) is None


@pytest.mark.parametrize(
    "handler", [lambda request, _: request.answer(0), lambda *_: b"frame", refuse, fail]
)
def test_a_oneway_request_is_never_answered(handler: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)

    assert dispatch({10: handler}, a_request(flag=ONEWAY_FLAG), FakeConnection()) is None


@pytest.mark.parametrize("request_", [a_request(), a_binary_request()])
def test_a_rejection_becomes_its_code_remark_and_fields(request_: RemotingCommand) -> None:
    answer = decoded(dispatch({10: refuse}, request_, FakeConnection()))

    assert (answer.code, answer.remark) == (17, "no such topic")
    assert answer.ext_fields == {"region": "R"}
    assert answer.serialize_type == request_.serialize_type


def test_a_rejection_may_have_only_its_code() -> None:
    def handler(*_: object) -> None:
        raise RequestRefusedError(ResponseCode.FLUSH_SLAVE_TIMEOUT, None)

    answer = decoded(dispatch({10: handler}, a_request(), FakeConnection()))

    assert (answer.code, answer.remark, answer.ext_fields) == (12, None, {})


def test_a_rejection_keeps_its_fields() -> None:
    refusal = RequestRefusedError(ResponseCode.SYSTEM_ERROR, "no", {"msgId": "7F"})

    assert refusal.with_fields({"msgId": "0", "region": "R"}) is refusal

    assert refusal.ext_fields == {"msgId": "7F", "region": "R"}


def test_our_own_error_is_logged_and_not_returned(caplog: pytest.LogCaptureFixture) -> None:
    answer = decoded(dispatch({10: fail}, a_request(), FakeConnection()))

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "secret" not in (answer.remark or "")
    assert "request failed code=10 opaque=7" in caplog.text
    assert "KeyError" in caplog.text


@pytest.mark.parametrize(
    ("outcome", "code"),
    [(a_request().answer(5), 5), (refuse, 17), (fail, 1)],
)
async def test_waiting_requests_are_answered_later_by_the_same_rules(
    outcome: object, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    connection = FakeConnection()
    handlers = {10: lambda *_: wait_then(outcome)}

    assert dispatch(handlers, a_request(), connection) is None
    (later,) = connection.later
    assert decoded(await later).code == code


@pytest.mark.parametrize("request_", [a_request(), a_binary_request()])
async def test_a_rejection_in_a_coroutine_or_later_keeps_its_fields(
    request_: RemotingCommand,
) -> None:
    connection = FakeConnection()
    unfinished = DeferredAnswer()
    handlers = {10: lambda *_: wait_then(refuse), 11: lambda *_: unfinished}
    later_request = RemotingCommand(11, 0, 8, 407, "JAVA")
    later_request.serialize_type = request_.serialize_type

    assert dispatch(handlers, request_, connection) is None
    assert dispatch(handlers, later_request, connection) is None
    unfinished.finish(RequestRefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, "later", {"k": "v"}))

    (later,) = connection.later
    assert decoded(await later).ext_fields == {"region": "R"}
    ((command, done),) = connection.waiting
    reports: list[tuple[int, int]] = []
    dispatcher = Dispatcher(
        handlers, lambda request, _, no, __: reports.append((request.opaque, no.code))
    )
    peer = cast("Connection", connection)
    answer = decoded(dispatcher.frame_of(command, peer, done.outcome))
    assert reports == [(8, 14)]
    assert (answer.code, answer.remark, answer.ext_fields) == (14, "later", {"k": "v"})


def test_an_answer_too_long_for_a_frame_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    def handler(request: RemotingCommand, _: object) -> RemotingCommand:
        return request.answer(0, body=bytes(FRAME_BYTES_MAX))

    answer = decoded(dispatch({10: handler}, a_request(), FakeConnection()))

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "response too long" in caplog.text
