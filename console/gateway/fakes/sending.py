"""Fake SendingGateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.message import ids, names
from console.gateway.answers import MessageQueue, TopicQueue
from console.gateway.errors import SYSTEM_ERROR, RequestFailedError
from console.gateway.fakes.broker import ADDRESS
from console.gateway.outgoing import (
    PRODUCER_GROUP,
    Delivered,
    Half,
    Halves,
    Sending,
    Sent,
    Timer,
    Timers,
)
from console.lib.moment import now_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from console.gateway.fakes.broker import FakeBroker
    from console.gateway.outgoing import NewMessage


QUERY_NOT_FOUND = 22


class FakeSending:
    """Half messages are kept outside the queues until they are committed or rolled back."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self._half: dict[str, NewMessage] = {}
        self._timers: list[Timer] = []

    def send(self, outgoing: Sequence[NewMessage]) -> Sending:
        self._broker.check()
        sent: list[Sent] = []
        for message in outgoing:
            uniq_key = f"{len(self._half) + now_ms() * 4096 + len(sent):032X}"
            place = ids.offset_msg_id(ids.parse_host(ADDRESS), len(self._half))
            if message.is_half:
                self._half[uniq_key] = message
                sent.append(Sent(message.queue, len(self._half) - 1, place, uniq_key, uniq_key))
                continue
            if TopicQueue(message.queue.topic, message.queue.queue_id) not in self._broker.queues:
                error = RequestFailedError(ADDRESS, SYSTEM_ERROR, "request queueId is illegal")
                return Sending(tuple(sent), error)
            if due := message.properties.get(names.PROPERTY_TIMER_DELIVER_MS):
                self._timers.append(_timer(message, uniq_key, int(due)))
                sent.append(Sent(message.queue, len(self._timers) - 1, place, uniq_key))
                continue
            sent.append(Sent(message.queue, self._put(message, uniq_key), place, uniq_key))
        return Sending(tuple(sent))

    def end(self, half: Sent, *, is_commit: bool) -> None:
        self._broker.check()
        message = self._half.pop(half.uniq_key, None)
        if message is None:
            raise RequestFailedError(ADDRESS, SYSTEM_ERROR, "no such half message")
        if is_commit:
            self._put(message, half.uniq_key)

    def undecided(self, broker_name: str, from_offset: int = 0) -> Halves | None:
        self._broker.check()
        halves = [
            Half(
                broker_name,
                offset,
                offset,
                message.queue.topic,
                message.queue.queue_id,
                PRODUCER_GROUP,
                uniq_key,
                message.properties.get(names.PROPERTY_KEYS, ""),
                message.properties.get(names.PROPERTY_TAGS, ""),
                len(message.body),
                1,
                "127.0.0.1:50001",
                60_000,
                0,
            )
            for offset, (uniq_key, message) in enumerate(self._half.items())
            if offset >= from_offset
        ]
        return Halves(tuple(halves), len(self._half), None)

    def timers(self, broker_name: str, key: str = "") -> Timers | None:
        self._broker.check()
        pending = sorted(self._timers, key=lambda each: each.due_ms)
        found = [each for each in pending if not key or key in (each.uniq_key, each.keys)]
        return Timers(tuple(found), len(pending), pending[0].due_ms if pending else None)

    def decide(self, half: Half, *, is_commit: bool) -> None:
        queue = MessageQueue(half.topic, half.broker_name, half.queue_id)
        self.end(Sent(queue, half.queue_offset, "", half.uniq_key), is_commit=is_commit)

    def check(self, half: Half) -> None:
        """Refuse: no producer is connected."""
        self._broker.check()
        if half.uniq_key not in self._half:
            raise RequestFailedError(ADDRESS, QUERY_NOT_FOUND, "no undecided transaction")
        raise RequestFailedError(ADDRESS, SYSTEM_ERROR, "no producer of the group is connected")

    def deliver(
        self, broker_name: str, offset_msg_id: str, group: str, client_id: str
    ) -> Delivered:
        self._broker.check()
        members = {each.client_id for each in self._broker.members.get(group, ())}
        if client_id not in members:
            remark = f"The Consumer <{group}> <{client_id}> not online"
            raise RequestFailedError(ADDRESS, SYSTEM_ERROR, remark)
        self._broker.delivered.append((group, client_id, offset_msg_id))
        return Delivered("CR_SUCCESS", "", 3)

    def _put(self, message: NewMessage, uniq_key: str) -> int:
        carried = {**message.properties, names.PROPERTY_UNIQ_KEY: uniq_key}
        queue = message.queue
        return self._broker.put_message(
            queue.topic, queue.queue_id, message.body, now_ms(), **carried
        )


def _timer(message: NewMessage, uniq_key: str, due_ms: int) -> Timer:
    get = message.properties.get
    return Timer(
        message.queue.topic,
        message.queue.queue_id,
        due_ms,
        uniq_key,
        get(names.PROPERTY_KEYS, ""),
        get(names.PROPERTY_TAGS, ""),
        len(message.body),
        now_ms(),
    )
