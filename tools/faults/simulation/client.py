"""Clients of a simulation, which record their operations as `operations`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from broker_core.errors import RemotingError
from broker_core.formats.record import decode_all
from broker_core.message import properties
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.remoting.client import RemotingClient
from tools.faults.operations import (
    NOWHERE,
    Cause,
    Delivered,
    Happened,
    Kind,
    Sent,
    Status,
    Stored,
    Unknown,
    digest_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from random import Random

    from broker_core.message.message import MessageExt
    from broker_core.remoting.connection import Connection
    from tools.faults.operations import Operation
    from tools.faults.simulation.node import HostClock

PLAIN_TOPIC, DELAYED_TOPIC = "red", "late"
TOPICS = (PLAIN_TOPIC, DELAYED_TOPIC)
QUEUES = 2
GROUP = "blue"
ANSWER_S = 3.0
CONNECT_S = 1.0
SUSPEND_MS = 1_500
BODY_MAX = 1_500
BURST_MAX = 12
PULLED_AT_ONCE = 8
DELAY_LEVELS = {1: 1, 2: 5}
"""Levels and their seconds."""
TICK_NS = 1_000_000
"""Records have times in whole milliseconds, so a second may seem one millisecond shorter."""
SUSPEND, SUBSCRIPTION = 2, 4
REFUSED = frozenset({ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY})


class Answered(NamedTuple):
    """The log range of an acknowledged message."""

    number: int
    """The number of the operation."""
    commit_log_offset: int
    at: float


class Notes:
    """The history of a run."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.operations: list[Operation] = []
        self.answered: list[Answered] = []
        self.codes: dict[int, int] = {}
        self._now = now

    def now_ns(self) -> int:
        return int(self._now() * 1e9)

    def sent(self, one: Sent, commit_log_offset: int = NOWHERE) -> None:
        if commit_log_offset != NOWHERE:
            self.answered.append(Answered(len(self.operations), commit_log_offset, self._now()))
        self.operations.append(one)

    def delivered(self, one: Delivered, commit_log_offset: int) -> None:
        self.answered.append(Answered(len(self.operations), commit_log_offset, self._now()))
        self.operations.append(one)


class Client:
    """One program with one connection."""

    def __init__(
        self, name: str, address: str, clock: HostClock, notes: Notes, dice: Random
    ) -> None:
        self.name = name
        self.is_over = False
        self.remoting = RemotingClient(clock=clock)
        self._address = address
        self._clock = clock
        self._notes = notes
        self._dice = dice

    async def connected(self) -> Connection:
        return await self.remoting.connection(self._address, CONNECT_S)

    async def ask(
        self, connection: Connection, code: int, body: bytes, table: Mapping[str, object]
    ) -> RemotingCommand:
        texts = {key: str(value) for key, value in table.items()}
        return await connection.request(RemotingCommand.request(code, texts, body), ANSWER_S)

    async def pause(self) -> None:
        await self._clock.sleep(self._dice.random() * 0.4)


class Producer(Client):
    """Sends one message or many at a time; without an answer it may send the same again."""

    def __init__(
        self,
        name: str,
        address: str,
        clock: HostClock,
        notes: Notes,
        dice: Random,
        *,
        delays: bool,
    ) -> None:
        super().__init__(name, address, clock, notes, dice)
        self._delays = delays
        self._number = 0

    async def run(self) -> None:
        while not self.is_over:
            count = 1 if self._dice.random() < 0.6 else self._dice.randint(2, BURST_MAX)
            await asyncio.gather(*(self._send() for _ in range(count)))
            await self.pause()

    async def _send(self) -> None:
        dice = self._dice
        self._number += 1
        number = f"{self.name}-{self._number}"
        body = number.encode() + b":" + b"." * dice.randrange(BODY_MAX)
        level = dice.choice(sorted(DELAY_LEVELS)) if self._delays and dice.random() < 0.15 else 0
        queue_id = dice.randrange(QUEUES)
        for _ in range(1 + (dice.random() < 0.3)):
            if await self._send_once(number, body, queue_id, level):
                return

    async def _send_once(self, number: str, body: bytes, queue_id: int, level: int) -> bool:
        """Send; return whether there was an answer."""
        invoked = self._notes.now_ns()
        code, queue_offset, place = await self._asked(number, body, queue_id, level)
        self._notes.codes[code] = self._notes.codes.get(code, 0) + 1
        status = Status.MAYBE
        if code == ResponseCode.SUCCESS:
            status = Status.OK
        elif code in REFUSED:
            status = Status.REFUSED
        self._notes.sent(
            Sent(
                client=self.name,
                id=number,
                digest=digest_of(body),
                topic=DELAYED_TOPIC if level else PLAIN_TOPIC,
                queue_id=queue_id,
                invoked=invoked,
                returned=self._notes.now_ns(),
                status=status,
                queue_offset=NOWHERE if level else queue_offset,
                kind=Kind.DELAYED if level else Kind.PLAIN,
                delay_ns=DELAY_LEVELS[level] * 1_000_000_000 - TICK_NS if level else 0,
            ),
            place,
        )
        return code >= 0

    async def _asked(
        self, number: str, body: bytes, queue_id: int, level: int
    ) -> tuple[int, int, int]:
        """Return code, queue_offset and commit_log_offset; -1 without an answer."""
        table = {"UNIQ_KEY": number, "KEYS": number}
        if level:
            table["DELAY"] = str(level)
        try:
            connection = await self.connected()
            answer = await self.ask(
                connection,
                RequestCode.SEND_MESSAGE_V2,
                body,
                {
                    "a": "pg",
                    "b": DELAYED_TOPIC if level else PLAIN_TOPIC,
                    "c": "TBW102",
                    "d": QUEUES,
                    "e": queue_id,
                    "f": 0,
                    "g": self._clock.now_ms(),
                    "h": 0,
                    "i": properties.encode(table),
                    "j": 0,
                    "k": "false",
                    "m": "false",
                },
            )
        except RemotingError:
            return -1, NOWHERE, NOWHERE
        found = answer.ext_fields
        place = int(found["msgId"][16:], 16) if found.get("msgId") else NOWHERE
        return answer.code, int(found.get("queueOffset", NOWHERE)), place


class Consumer(Client):
    """Reads all queues from its group's offsets, and commits; reconnects if needed."""

    def __init__(
        self, name: str, address: str, clock: HostClock, notes: Notes, dice: Random
    ) -> None:
        super().__init__(name, address, clock, notes, dice)
        self._session = 0

    async def run(self) -> None:
        while not self.is_over:
            self._session += 1
            session = f"{self.name}-{self._session}"
            cause = Happened(cause=Cause.REBALANCE, at=self._notes.now_ns(), group=GROUP)
            self._notes.operations.append(cause)
            try:
                connection = await self.connected()
                await asyncio.gather(
                    *(
                        self._read(connection, session, topic, queue_id)
                        for topic in TOPICS
                        for queue_id in range(QUEUES)
                    )
                )
            except RemotingError:
                self.remoting.close(self._address)
                await self.pause()

    async def _read(self, connection: Connection, session: str, topic: str, queue_id: int) -> None:
        place: dict[str, object] = {"consumerGroup": GROUP, "topic": topic, "queueId": queue_id}
        answer = await self.ask(connection, RequestCode.QUERY_CONSUMER_OFFSET, b"", place)
        at = int(answer.ext_fields["offset"]) if answer.code == ResponseCode.SUCCESS else 0
        while not self.is_over:
            invoked = self._notes.now_ns()
            answer = await self._pull(connection, topic, queue_id, at)
            if answer.code == ResponseCode.SUCCESS:
                for message in decode_all(answer.body):
                    self._deliver(session, message)
            elif answer.code not in PULLED_NOTHING:
                if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                    self._notes.operations.append(Unknown(topic, invoked))
                await self.pause()
                continue
            at = int(answer.ext_fields["nextBeginOffset"])
            if answer.code == ResponseCode.PULL_OFFSET_MOVED:
                await self.pause()
            await self.ask(
                connection, RequestCode.UPDATE_CONSUMER_OFFSET, b"", place | {"commitOffset": at}
            )

    async def _pull(
        self, connection: Connection, topic: str, queue_id: int, at: int
    ) -> RemotingCommand:
        return await self.ask(
            connection,
            RequestCode.PULL_MESSAGE,
            b"",
            pull_fields(topic, queue_id, at, SUSPEND | SUBSCRIPTION),
        )

    def _deliver(self, session: str, message: MessageExt) -> None:
        self._notes.delivered(
            Delivered(
                group=GROUP,
                session=session,
                id=id_of(message.body),
                digest=digest_of(message.body),
                topic=message.topic,
                queue_id=message.queue_id,
                queue_offset=message.queue_offset,
                at=self._notes.now_ns(),
                stored_ms=message.store_timestamp,
            ),
            message.commit_log_offset,
        )


PULLED_NOTHING = frozenset(
    {
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


def pull_fields(topic: str, queue_id: int, queue_offset: int, sys_flag: int) -> dict[str, object]:
    return {
        "consumerGroup": GROUP,
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": queue_offset,
        "maxMsgNums": PULLED_AT_ONCE,
        "sysFlag": sys_flag,
        "commitOffset": 0,
        "suspendTimeoutMillis": SUSPEND_MS,
        "subscription": "*",
        "expressionType": "TAG",
        "subVersion": 0,
    }


async def read_all(client: Client, topics: tuple[str, ...] = TOPICS) -> list[Stored]:
    """Return the contents of all queues, from their beginnings."""
    connection = await client.connected()
    found: list[Stored] = []
    for topic in topics:
        for queue_id in range(QUEUES):
            found += [one async for one in _read_queue(client, connection, topic, queue_id)]
    return found


async def _read_queue(
    client: Client, connection: Connection, topic: str, queue_id: int
) -> AsyncIterator[Stored]:
    at = 0
    while True:
        answer = await client.ask(
            connection,
            RequestCode.PULL_MESSAGE,
            b"",
            pull_fields(topic, queue_id, at, SUBSCRIPTION),
        )
        if answer.code == ResponseCode.SUCCESS:
            for message in decode_all(answer.body):
                yield _stored(message)
        elif answer.code not in PULLED_NOTHING:
            return
        after = int(answer.ext_fields["nextBeginOffset"])
        if after == at or (answer.code == ResponseCode.PULL_OFFSET_MOVED and after < at):
            return
        at = after


def _stored(message: MessageExt) -> Stored:
    return Stored(
        id=id_of(message.body),
        digest=digest_of(message.body),
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        stored_ms=message.store_timestamp,
    )


def id_of(body: bytes) -> str:
    return body.partition(b":")[0].decode(errors="replace")
