"""Pulling and sending with arbitrary answers from the broker."""

from __future__ import annotations

import asyncio
import itertools
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from analytics.errors import ReportError
from analytics.remote.access import Access
from analytics.remote.cluster import Queue, RefusedError, Route
from analytics.remote.pull import PULLS_WITHOUT_PROGRESS_MAX, PulledRange
from analytics.remote.send import Outgoing, Sender, check_properties
from broker_core.protocol.codes import ResponseCode
from broker_core.protocol.command import RemotingCommand

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUE = Queue("orders", "broker-a", 0)


class ScriptedCluster:
    """A cluster whose broker answers by a function of the request's fields."""

    refuses = False
    writes = tuple(QUEUE._replace(queue_id=number) for number in range(3))

    def __init__(
        self,
        answers: Callable[[dict[str, str]], tuple[int, dict[str, str], bytes]],
        access: Access | None = None,
    ) -> None:
        self.access = access or Access(("127.0.0.1:9876",))
        self.requests: list[tuple[Queue, dict[str, str]]] = []
        self.bodies: list[bytes] = []
        self._answers = answers

    async def ask(
        self, queue: Queue, code: int, fields: dict[str, str], body: bytes = b"", **_: Any
    ) -> RemotingCommand:
        self.requests.append((queue, fields))
        self.bodies.append(body)
        code, ext_fields, content = self._answers(fields)
        if code == -1:
            raise ReportError("The broker broker-a does not answer.")
        if self.refuses and code != ResponseCode.SUCCESS:
            raise RefusedError(f"The broker refuses: code {code}.", code)
        return RemotingCommand(code=code, ext_fields=ext_fields, body=content)

    async def pause(self, attempt: int) -> None:
        await asyncio.sleep(0)

    async def route(self, topic: str) -> Route:
        return Route((), self.writes, {})


def pulled(
    cluster: ScriptedCluster, first: int, behind: int
) -> tuple[list[bytes], list[tuple[int, int]]]:
    one = PulledRange(QUEUE, first, behind, "g")

    async def bodies() -> list[bytes]:
        return [body async for body in one.bodies(cluster)]  # type: ignore[arg-type]

    return asyncio.run(bodies()), one.lost


def test_pulls_continue_where_the_broker_says() -> None:
    def answers(fields: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        at = int(fields["queueOffset"])
        return ResponseCode.SUCCESS, {"nextBeginOffset": str(at + 3)}, b"%d" % at

    cluster = ScriptedCluster(answers)

    assert pulled(cluster, 5, 12) == ([b"5", b"8", b"11"], [])
    assert [fields["maxMsgNums"] for _, fields in cluster.requests] == ["7", "4", "1"]


def test_expired_messages_are_a_lost_range() -> None:
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
def test_a_queue_that_ended_or_stalled_ends_the_pulling(code: int, following: str) -> None:
    cluster = ScriptedCluster(lambda _: (code, {"nextBeginOffset": following}, b""))

    assert pulled(cluster, 5, 10) == ([], [(5, 10)])
    assert len(cluster.requests) <= PULLS_WITHOUT_PROGRESS_MAX + 1


@pytest.mark.parametrize("fields", [{}, {"nextBeginOffset": "soon"}])
def test_an_answer_without_a_next_offset_is_reported_in_one_sentence(
    fields: dict[str, str],
) -> None:
    cluster = ScriptedCluster(lambda _: (ResponseCode.SUCCESS, fields, b""))

    with pytest.raises(ReportError, match="has no valid next offset"):
        pulled(cluster, 0, 5)


def test_each_message_is_sent_until_it_is_acknowledged() -> None:
    failures = iter([True, True, False, True])

    def answers(_: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        return (-1 if next(failures, False) else ResponseCode.SUCCESS), {}, b""

    cluster = ScriptedCluster(answers)
    outgoing = [Outgoing("orders", b"%d" % number, {"KEYS": str(number)}) for number in range(5)]

    asyncio.run(Sender(cluster, "pg").send_all(outgoing))  # type: ignore[arg-type]

    assert len(cluster.requests) == 5 + 3
    assert {fields["i"] for _, fields in cluster.requests} == {
        f"KEYS\x01{number}" for number in range(5)
    }
    assert len({queue for queue, _ in cluster.requests}) == 3


def test_an_unacknowledged_message_fails_the_write() -> None:
    cluster = ScriptedCluster(lambda _: (-1, {}, b""), Access(("n:1",), send_retries=5))
    sender = Sender(cluster, "pg")  # type: ignore[arg-type]

    with pytest.raises(ReportError, match="does not answer"):
        asyncio.run(sender.send_all([Outgoing("orders", b"x", {"KEYS": "k"})]))
    assert len(cluster.requests) == 1 + 5


def test_a_permanently_rejected_message_is_sent_once() -> None:
    cluster = ScriptedCluster(lambda _: (ResponseCode.MESSAGE_ILLEGAL, {}, b""))
    cluster.refuses = True

    with pytest.raises(ReportError, match="The broker refuses: code 13"):
        sent(cluster, Outgoing("orders", b"x", {"KEYS": "k"}))
    assert len(cluster.requests) == 1


def test_a_body_larger_than_brokers_accept_is_not_sent_at_all() -> None:
    cluster = ScriptedCluster(accept, Access(("n:1",), message_bytes_max=1000))

    with pytest.raises(ReportError, match="a body of 1,001 bytes, more than the 1,000"):
        sent(cluster, Outgoing("orders", bytes(1001), {"KEYS": "k"}))
    assert not cluster.requests


def test_bodies_above_a_size_are_compressed() -> None:
    cluster = ScriptedCluster(accept, Access(("n:1",), compress_over=100))

    sent(cluster, Outgoing("orders", bytes(99), {}), Outgoing("orders", bytes(100), {}))

    assert cluster.bodies == [bytes(99), zlib.compress(bytes(100))]
    assert [int(fields["f"]) for _, fields in cluster.requests] == [0, 0x1 | 0x300]


def test_messages_with_a_sharding_key_go_to_one_queue_in_order() -> None:
    keys = ["", "a", "a", "key-17", "Straße 😀"]
    cluster = ScriptedCluster(accept)
    outgoing = [
        Outgoing("orders", b"%d" % number, {}, sharding_key=keys[number % 5])
        for number in range(200)
    ]

    sent(cluster, *outgoing)

    by_queue: dict[int, list[int]] = {}
    for (queue, _), body in zip(cluster.requests, cluster.bodies, strict=True):
        if keys[int(body) % 5]:
            by_queue.setdefault(queue.queue_id, []).append(int(body))
    # The value of Java's "…".hashCode(), modulo three queues.
    assert {keys[number % 5]: queue for queue, found in by_queue.items() for number in found} == {
        "a": 97 % 3,
        "key-17": abs(-1134722988) % 3,
        "Straße 😀": 1691660781 % 3,
    }
    assert all(found == sorted(found) for found in by_queue.values())


def test_order_is_kept_while_a_broker_is_away() -> None:
    turns = itertools.count()
    cluster = ScriptedCluster(
        lambda _: (-1 if next(turns) % 3 == 0 else ResponseCode.SUCCESS, {}, b"")
    )
    outgoing = [Outgoing("orders", b"%d" % number, {}, queue_id=2) for number in range(30)]

    sent(cluster, *outgoing)

    assert {queue.queue_id for queue, _ in cluster.requests} == {2}
    assert list(dict.fromkeys(cluster.bodies)) == [one.body for one in outgoing]
    assert cluster.bodies == sorted(cluster.bodies, key=int)


def test_nothing_more_is_sent_after_a_rejected_message() -> None:
    cluster = ScriptedCluster(lambda _: (ResponseCode.MESSAGE_ILLEGAL, {}, b""))
    cluster.refuses = True

    with pytest.raises(ReportError):
        sent(cluster, *(Outgoing("orders", b"x", {}, queue_id=0) for _ in range(100)))
    assert len(cluster.requests) == 1


@pytest.mark.parametrize(
    ("queue_id", "broker_name", "sentence"),
    [
        (3, "", "names queue 3 of orders, which doesn't exist"),
        (0, "broker-b", "names queue 0 of orders on broker-b, which doesn't exist"),
    ],
)
def test_a_queue_that_does_not_exist_is_rejected(
    queue_id: int, broker_name: str, sentence: str
) -> None:
    message = Outgoing("orders", b"x", {}, queue_id=queue_id, broker_name=broker_name)

    with pytest.raises(ReportError, match=sentence):
        sent(ScriptedCluster(accept), message)


def test_a_queue_of_several_brokers_needs_a_brokers_name() -> None:
    cluster = ScriptedCluster(accept)
    cluster.writes = (QUEUE, QUEUE._replace(broker_name="broker-b"))

    with pytest.raises(ReportError, match=r"exists on several brokers \(broker-a, broker-b\)"):
        sent(cluster, Outgoing("orders", b"x", {}, queue_id=0))
    sent(cluster, Outgoing("orders", b"x", {}, queue_id=0, broker_name="broker-b"))
    assert cluster.requests[0][0].broker_name == "broker-b"


def accept(_: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
    return ResponseCode.SUCCESS, {}, b""


def sent(cluster: ScriptedCluster, *outgoing: Outgoing) -> None:
    asyncio.run(Sender(cluster, "pg").send_all(outgoing))  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"": "b"}, {"a\x01": "b"}, {"a": "b\x02"}, {"a": "b" * 40_000}])
def test_properties_that_would_not_be_read_back_are_rejected(wrong: dict[str, str]) -> None:
    with pytest.raises(ReportError, match="can"):
        check_properties(wrong)
