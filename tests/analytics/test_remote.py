"""Pulling and sending where the broker answers what it likes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from analytics.errors import ReportError
from analytics.remote import send as send_module
from analytics.remote.cluster import Queue, Route
from analytics.remote.pull import PULLS_WITHOUT_PROGRESS_MAX, PulledRange
from analytics.remote.send import Outgoing, Sender, check_properties
from broker_core.protocol.codes import ResponseCode
from broker_core.protocol.command import RemotingCommand

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUE = Queue("orders", "broker-a", 0)


class ScriptedCluster:
    """A cluster whose broker answers by a function of the request's fields."""

    def __init__(self, answers: Callable[[dict[str, str]], tuple[int, dict[str, str], bytes]]):
        self.asked: list[tuple[Queue, dict[str, str]]] = []
        self._answers = answers

    async def ask(
        self, queue: Queue, code: int, fields: dict[str, str], body: bytes = b"", **_: Any
    ) -> RemotingCommand:
        self.asked.append((queue, fields))
        code, ext_fields, content = self._answers(fields)
        if code == -1:
            raise ReportError("The broker broker-a does not answer.")
        return RemotingCommand(code=code, ext_fields=ext_fields, body=content)

    async def route(self, topic: str) -> Route:
        return Route((), tuple(QUEUE._replace(queue_id=number) for number in range(3)), {})


def pulled(
    cluster: ScriptedCluster, first: int, behind: int
) -> tuple[list[bytes], list[tuple[int, int]]]:
    one = PulledRange(QUEUE, first, behind, "g")

    async def bodies() -> list[bytes]:
        return [body async for body in one.bodies(cluster)]  # type: ignore[arg-type]

    return asyncio.run(bodies()), one.lost


def test_pulls_go_on_where_the_broker_says() -> None:
    def answers(fields: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        at = int(fields["queueOffset"])
        return ResponseCode.SUCCESS, {"nextBeginOffset": str(at + 3)}, b"%d" % at

    cluster = ScriptedCluster(answers)

    assert pulled(cluster, 5, 12) == ([b"5", b"8", b"11"], [])
    assert [fields["maxMsgNums"] for _, fields in cluster.asked] == ["7", "4", "1"]


def test_messages_that_expired_are_a_lost_range() -> None:
    def answers(fields: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        at = int(fields["queueOffset"])
        if at < 8:
            return ResponseCode.PULL_OFFSET_MOVED, {"nextBeginOffset": "8"}, b""
        return ResponseCode.SUCCESS, {"nextBeginOffset": "10"}, b"rest"

    assert pulled(ScriptedCluster(answers), 5, 10) == ([b"rest"], [(5, 8)])
    assert pulled(ScriptedCluster(answers), 5, 7) == ([], [(5, 7)])


@pytest.mark.parametrize(
    ("code", "following"),
    [
        (ResponseCode.PULL_NOT_FOUND, "5"),
        (ResponseCode.PULL_OFFSET_MOVED, "0"),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, "5"),
    ],
)
def test_a_queue_that_ended_or_stands_still_ends_the_pulling(code: int, following: str) -> None:
    cluster = ScriptedCluster(lambda _: (code, {"nextBeginOffset": following}, b""))

    assert pulled(cluster, 5, 10) == ([], [(5, 10)])
    assert len(cluster.asked) <= PULLS_WITHOUT_PROGRESS_MAX + 1


@pytest.mark.parametrize("fields", [{}, {"nextBeginOffset": "soon"}])
def test_an_answer_without_a_next_offset_is_a_sentence(fields: dict[str, str]) -> None:
    cluster = ScriptedCluster(lambda _: (ResponseCode.SUCCESS, fields, b""))

    with pytest.raises(ReportError, match="does not say where to go on"):
        pulled(cluster, 0, 5)


def test_each_message_is_sent_until_somebody_acknowledges_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(send_module, "PAUSE_S", 0.0)
    failures = iter([True, True, False, True])

    def answers(_: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        return (-1 if next(failures, False) else ResponseCode.SUCCESS), {}, b""

    cluster = ScriptedCluster(answers)
    outgoing = [Outgoing("orders", b"%d" % number, {"KEYS": str(number)}) for number in range(5)]

    asyncio.run(Sender(cluster, "pg").send_all(outgoing))  # type: ignore[arg-type]

    assert len(cluster.asked) == 5 + 3
    assert {fields["i"] for _, fields in cluster.asked} == {
        f"KEYS\x01{number}" for number in range(5)
    }
    assert len({queue for queue, _ in cluster.asked}) == 3


def test_a_message_that_nobody_acknowledges_fails_the_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(send_module, "PAUSE_S", 0.0)
    cluster = ScriptedCluster(lambda _: (-1, {}, b""))
    sender = Sender(cluster, "pg")  # type: ignore[arg-type]

    with pytest.raises(ReportError, match="does not answer"):
        asyncio.run(sender.send_all([Outgoing("orders", b"x", {"KEYS": "k"})]))
    assert len(cluster.asked) == send_module.ATTEMPTS


@pytest.mark.parametrize(
    "wrong", [{"a": ""}, {"": "b"}, {"a\x01": "b"}, {"a": "b\x02"}, {"a": "b" * 40_000}]
)
def test_properties_that_would_not_come_back_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ReportError, match="can"):
        check_properties(wrong)
