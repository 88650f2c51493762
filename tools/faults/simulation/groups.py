"""Clients of a mixed simulation: transactions, filters, retries, dead letters.

Three groups read one topic. One gets all messages, returns some and gives up others. One filters
by a tag whose hash equals another tag's, so that members must filter again, as RocketMQ's do. One
filters by an SQL92 expression over properties that not every message has.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from broker_core.errors import RemotingError
from broker_core.formats.record import decode_all
from broker_core.message import properties
from broker_core.protocol.codes import RequestCode, ResponseCode
from tools.faults.operations import (
    NEVER,
    NOWHERE,
    Cause,
    Consumed,
    Delivered,
    Ended,
    GaveBack,
    Happened,
    Kind,
    Outcome,
    Progress,
    Sent,
    Status,
    Unknown,
    digest_of,
)
from tools.faults.simulation.client import (
    PULLED_NOTHING,
    QUEUES,
    REFUSED,
    SUBSCRIPTION,
    SUSPEND,
    TICK_NS,
    Client,
    id_of,
    pull_fields,
)

if TYPE_CHECKING:
    from random import Random

    from broker_core.message.message import MessageExt
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from tools.faults.simulation.client import Notes
    from tools.faults.simulation.node import HostClock

MIXED_TOPIC, HALF_TOPIC = "green", "pink"
ALL, TAGGED, SELECTED = "all", "tagged", "selected"
RETRY_TOPIC, DEAD_LETTER_TOPIC = f"%RETRY%{ALL}", f"%DLQ%{ALL}"
TOPICS = (MIXED_TOPIC, HALF_TOPIC, RETRY_TOPIC, DEAD_LETTER_TOPIC)
TAG, TWIN_TAG, OTHER_TAG = "Aa", "BB", "C"
"""The first two have the same hash."""
EXPRESSION = "NOT (a > 4) OR b = 'x'"
RETRY_NS = 1_000_000_000 - TICK_NS
RECONSUMED_MAX = 2
PRODUCERS = "pg"
ENDINGS = {Outcome.COMMIT: "8", Outcome.ROLLBACK: "12"}
SETTLE_TRIES = 40


class Half(NamedTuple):
    """An acknowledged half message and its planned outcome."""

    id: str
    queue_offset: int
    commit_log_offset: int
    outcome: Outcome


def properties_of(number: int) -> dict[str, str]:
    """Return a message's tag and properties; one or both may be missing."""
    table = {"TAGS": (TAG, TWIN_TAG, OTHER_TAG)[number // 3 % 3]}
    if number % 4:
        table["a"] = str(number % 8)
    if number % 5:
        table["b"] = "x" if number % 5 == 1 else "y"
    return table


def unwanted_by(table: dict[str, str]) -> tuple[str, ...]:
    """Return the groups that filter it out, by a model that shares no code with the filters.

    A comparison with a missing property is unknown, and so is its negation.
    """
    is_selected = table.get("b") == "x" or ("a" in table and int(table["a"]) <= 4)
    return (
        *(() if table["TAGS"] == TAG else (TAGGED,)),
        *(() if is_selected else (SELECTED,)),
    )


class MixedProducer(Client):
    """Sends plain messages with tags and properties, and transactions; each ID once."""

    def __init__(
        self, name: str, address: str, clock: HostClock, notes: Notes, dice: Random
    ) -> None:
        super().__init__(name, address, clock, notes, dice)
        self.server = address
        self._number = 0
        self._halves: list[Half] = []

    async def run(self) -> None:
        while not self.is_over:
            self._number += 1
            number = self._number
            try:
                connection = await self.connected()
                if number % 3 == 0:
                    await self._transact(connection, f"{self.name}-{number}", number)
                else:
                    table = properties_of(number)
                    await self.send(connection, MIXED_TOPIC, number, table)
            except RemotingError:
                self.remoting.close(self._address)
            await self._clock.sleep(self._dice.random() * 0.15)
        await self._settle()

    async def send(
        self, connection: Connection, topic: str, number: int, table: dict[str, str]
    ) -> RemotingCommand:
        """Send, and record the answer or its absence."""
        message_id = f"{self.name}-{number}"
        body = message_id.encode() + b":" + b"." * self._dice.randrange(300)
        queue_id = number % QUEUES
        sent = Sent(
            *(self.name, message_id, digest_of(body), topic, queue_id, self._notes.now_ns()),
            kind=Kind.HALF if topic == HALF_TOPIC else Kind.PLAIN,
            server=self.server,
            unwanted_by=unwanted_by(table) if topic == MIXED_TOPIC else (),
        )
        fields = {
            "a": PRODUCERS,
            "b": topic,
            "c": "TBW102",
            "d": QUEUES,
            "e": queue_id,
            "f": 0,
            "g": self._clock.now_ms(),
            "h": 0,
            "j": 0,
            "k": "false",
            "m": "false",
            "i": properties.encode({**table, "UNIQ_KEY": message_id, "KEYS": message_id}),
        }
        try:
            answer = await self.ask(connection, RequestCode.SEND_MESSAGE_V2, body, fields)
        except RemotingError:
            self._notes.operations.append(sent)
            raise
        self._notes.operations.append(_answered(sent, answer, self._notes.now_ns()))
        return answer

    async def _transact(self, connection: Connection, message_id: str, number: int) -> None:
        table = {"TRAN_MSG": "true", "PGROUP": PRODUCERS}
        answer = await self.send(connection, HALF_TOPIC, number, table)
        if answer.code == ResponseCode.SUCCESS:
            place = int(answer.ext_fields["msgId"][16:], 16)
            outcome = Outcome.ROLLBACK if number % 9 == 0 else Outcome.COMMIT
            offset = int(answer.ext_fields["queueOffset"])
            half = Half(message_id, offset, place, outcome)
            self._halves.append(half)
            await self._clock.sleep(self._dice.random() * 0.3)
            await self._end(connection, half)

    async def _end(self, connection: Connection, half: Half) -> None:
        self._notes.operations.append(Ended(half.id, half.outcome, self._notes.now_ns()))
        fields: dict[str, object] = {
            "producerGroup": PRODUCERS,
            "tranStateTableOffset": half.queue_offset,
            "commitLogOffset": half.commit_log_offset,
            "commitOrRollback": ENDINGS[half.outcome],
            "msgId": half.id,
        }
        await self.ask(connection, RequestCode.END_TRANSACTION, b"", fields)

    async def _settle(self) -> None:
        """Send all outcomes again, because an END gets no answer."""
        left = list(self._halves)
        for _ in range(SETTLE_TRIES):
            try:
                connection = await self.connected()
                while left:
                    await self._end(connection, left[-1])
                    left.pop()
            except RemotingError:
                self.remoting.close(self._address)
                await self.pause()


def _answered(sent: Sent, answer: RemotingCommand, now: int) -> Sent:
    status = Status.MAYBE
    if answer.code == ResponseCode.SUCCESS:
        status = Status.OK
    elif answer.code in REFUSED:
        status = Status.REFUSED
    is_placed = status is Status.OK and sent.kind is Kind.PLAIN
    queue_offset = int(answer.ext_fields["queueOffset"]) if is_placed else NOWHERE
    return Sent(
        *(sent.client, sent.id, sent.digest, sent.topic, sent.queue_id, sent.invoked),
        *(now if status is not Status.MAYBE else NEVER, status, queue_offset, sent.kind),
        server=sent.server,
        unwanted_by=sent.unwanted_by,
    )


class Prober(MixedProducer):
    """Sometimes sends to a slave, which must reject the message."""

    async def run(self) -> None:
        while not self.is_over:
            self._number += 1
            try:
                connection = await self.connected()
                await self.send(connection, MIXED_TOPIC, self._number, properties_of(1))
            except RemotingError:
                self.remoting.close(self._address)
            await self._clock.sleep(self._dice.random())


class Member(Client):
    """The only member of a group. It commits messages after it has processed them."""

    def __init__(
        self,
        group: str,
        address: str,
        clock: HostClock,
        notes: Notes,
        dice: Random,
    ) -> None:
        super().__init__(f"member-{group}", address, clock, notes, dice)
        self._group = group
        self._session = 0
        self._topics = [(MIXED_TOPIC, queue_id) for queue_id in range(QUEUES)]
        self._filter = {
            ALL: {"subscription": "*", "expressionType": "TAG"},
            TAGGED: {"subscription": TAG, "expressionType": "TAG"},
            SELECTED: {"subscription": EXPRESSION, "expressionType": "SQL92"},
        }[group]
        if group == ALL:
            self._topics.append((RETRY_TOPIC, 0))

    async def run(self) -> None:
        while not self.is_over:
            self._session += 1
            self._notes.operations.append(
                Happened(Cause.REBALANCE, self._notes.now_ns(), self._group)
            )
            try:
                connection = await self.connected()
                await asyncio.gather(*(self._read(connection, *place) for place in self._topics))
            except RemotingError:
                self.remoting.close(self._address)
                await self.pause()

    async def _read(self, connection: Connection, topic: str, queue_id: int) -> None:
        place = {"consumerGroup": self._group, "topic": topic, "queueId": queue_id}
        asked_at = self._notes.now_ns()
        answer = await self.ask(connection, RequestCode.QUERY_CONSUMER_OFFSET, b"", place)
        at = 0
        if answer.code == ResponseCode.SUCCESS:
            at = int(answer.ext_fields["offset"])
            self._note_progress(topic, queue_id, at, asked_at)
        while not self.is_over:
            fields = pull_fields(topic, queue_id, at, SUSPEND | SUBSCRIPTION) | self._filter
            fields["consumerGroup"] = self._group
            invoked = self._notes.now_ns()
            answer = await self.ask(connection, RequestCode.PULL_MESSAGE, b"", fields)
            if answer.code == ResponseCode.SUCCESS:
                for message in decode_all(answer.body):
                    if self._group != TAGGED or message.properties.get("TAGS") == TAG:
                        await self._take(connection, message)
            elif answer.code not in PULLED_NOTHING:
                if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                    self._notes.operations.append(Unknown(topic, invoked))
                await self.pause()
                continue
            at = int(answer.ext_fields["nextBeginOffset"])
            if answer.code == ResponseCode.PULL_OFFSET_MOVED:
                await self.pause()
            commit = place | {"commitOffset": at}
            asked_at = self._notes.now_ns()
            answer = await self.ask(connection, RequestCode.UPDATE_CONSUMER_OFFSET, b"", commit)
            if answer.code == ResponseCode.SUCCESS:
                self._note_progress(topic, queue_id, at, asked_at)

    def _note_progress(self, topic: str, queue_id: int, offset: int, asked_at: int) -> None:
        """Record the time of the request, because an answer may arrive after its broker's end."""
        self._notes.operations.append(Progress(self._group, topic, queue_id, offset, asked_at))

    async def _take(self, connection: Connection, message: MessageExt) -> None:
        message_id, times = id_of(message.body), message.reconsume_times
        self._notes.operations.append(
            Delivered(
                *(self._group, f"{self.name}-{self._session}", message_id),
                *(digest_of(message.body), message.topic, message.queue_id),
                *(message.queue_offset, self._notes.now_ns(), times),
                stored_ms=message.store_timestamp,
            )
        )
        number = int(message_id.rpartition("-")[2])
        is_dead = number % 7 == 2 and times >= RECONSUMED_MAX
        if self._group == ALL and (number % 7 == 2 or (number % 7 == 4 and times == 0)):
            await self._give_back(connection, message, is_dead=is_dead)
        else:
            self._notes.operations.append(Consumed(self._group, message_id, self._notes.now_ns()))

    async def _give_back(
        self, connection: Connection, message: MessageExt, *, is_dead: bool
    ) -> None:
        """Return a message, retrying until it's acknowledged or the connection is lost."""
        fields: dict[str, object] = {
            "group": self._group,
            "offset": message.commit_log_offset,
            "delayLevel": 1,
            "originTopic": MIXED_TOPIC,
            "maxReconsumeTimes": RECONSUMED_MAX,
        }
        status = Status.MAYBE
        while status is not Status.OK:
            at = self._notes.now_ns()
            try:
                answer = await self.ask(connection, RequestCode.CONSUMER_SEND_MSG_BACK, b"", fields)
                if answer.code == ResponseCode.SUCCESS:
                    status = Status.OK
            finally:
                self._notes.operations.append(
                    GaveBack(
                        self._group,
                        id_of(message.body),
                        at,
                        0 if is_dead else RETRY_NS,
                        status,
                        is_dead,
                    )
                )
            if status is not Status.OK:
                await self.pause()
