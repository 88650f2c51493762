"""Sender: sends messages to the queues of their topics until a broker acknowledges each of them.

Source: common/protocol/header/SendMessageRequestHeaderV2.java, client/producer/selector/
SelectMessageQueueByHash.java, client/impl/producer/DefaultMQProducerImpl.java (4.9.7).
"""

from __future__ import annotations

import asyncio
import itertools
import zlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from analytics.errors import ReportError
from analytics.remote.cluster import RefusedError
from broker_core.errors import PropertiesError
from broker_core.message import names, properties
from broker_core.message.sys_flag import MessageSysFlag
from broker_core.protocol.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from analytics.remote.cluster import Cluster, Queue

IN_FLIGHT = 64
DEFAULT_TOPIC_QUEUE_NUMS = 4
COMPRESSED = int(MessageSysFlag.COMPRESSED | MessageSysFlag.COMPRESSION_ZLIB)
# After one of these responses, the same broker may store the message later, or another may.
MAY_SUCCEED = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)


class Outgoing(NamedTuple):
    """A message to send.

    Messages with a sharding key, or with a queue, keep their order within the queue. A queue
    without a broker name means the only broker that has a queue with this number.
    """

    topic: str
    body: bytes
    properties: Mapping[str, str]
    sharding_key: str = ""
    queue_id: int | None = None
    broker_name: str = ""

    @property
    def is_ordered(self) -> bool:
        return bool(self.sharding_key) or self.queue_id is not None


class Sender:
    """Sends in the name of a producer group; belongs to its cluster's event loop.

    If an acknowledgement is lost, or reports that the message may not survive, the message is sent
    again. It may then be stored twice, each time with the same UNIQ_KEY.
    """

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._access = cluster.access
        self._group = group
        self._turn = itertools.count()

    async def send_all(self, messages: Sequence[Outgoing]) -> None:
        """Send messages, up to IN_FLIGHT at a time; all are acknowledged on return.

        Raises:
            ReportError: a message is refused or not acknowledged; others may have been stored.
        """
        runs = iter(await self._runs(messages))
        has_failed = False

        async def work(runs: Iterator[tuple[Queue | None, list[Outgoing]]]) -> None:
            nonlocal has_failed
            for queue, run in runs:
                for message in run:
                    if has_failed:
                        return
                    try:
                        await self._send(message, queue)
                    except ReportError:
                        has_failed = True
                        raise

        workers = (work(runs) for _ in range(min(IN_FLIGHT, len(messages))))
        outcomes = await asyncio.gather(*workers, return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _runs(
        self, messages: Sequence[Outgoing]
    ) -> list[tuple[Queue | None, list[Outgoing]]]:
        """Return lists of messages to send in order: one for each queue, and one for each other
        message.
        """
        ordered: dict[Queue, list[Outgoing]] = {}
        runs: list[tuple[Queue | None, list[Outgoing]]] = []
        for message in messages:
            if not message.is_ordered:
                runs.append((None, [message]))
                continue
            queue = await self._queue_of(message)
            if queue not in ordered:
                ordered[queue] = []
                runs.append((queue, ordered[queue]))
            ordered[queue].append(message)
        return runs

    async def _queue_of(self, message: Outgoing) -> Queue:
        queues = await self._writes(message.topic)
        if message.queue_id is None:
            # The same queue as the Java client's SelectMessageQueueByHash.
            return queues[abs(java_hash(message.sharding_key)) % len(queues)]
        found = [
            queue
            for queue in queues
            if queue.queue_id == message.queue_id and message.broker_name in ("", queue.broker_name)
        ]
        if len(found) > 1:
            raise ReportError(
                f"Queue {message.queue_id} of {message.topic} exists on several brokers "
                f"({', '.join(queue.broker_name for queue in found)}). Name one of them in the "
                "column broker_name."
            )
        if not found:
            where = f" on {message.broker_name}" if message.broker_name else ""
            raise ReportError(
                f"A row names queue {message.queue_id} of {message.topic}{where}, which doesn't "
                "exist or isn't writable."
            )
        return found[0]

    async def _writes(self, topic: str) -> tuple[Queue, ...]:
        queues = (await self._cluster.route(topic)).writes
        if not queues:
            raise ReportError(f"The topic {topic} has no writable queue. Check its permissions.")
        return queues

    async def _send(self, message: Outgoing, fixed: Queue | None) -> None:
        body, sys_flag = self._body_of(message)
        text = properties.encode(message.properties)
        problem: ReportError | None = None
        for attempt in range(1 + self._access.send_retries):
            await self._cluster.pause(attempt)
            queues = await self._writes(message.topic)
            # Each attempt uses another queue, on another broker if possible.
            queue = fixed or queues[next(self._turn) % len(queues)]
            fields = self._fields(message.topic, queue.queue_id, sys_flag, text)
            try:
                await self._cluster.ask(
                    queue,
                    RequestCode.SEND_MESSAGE_V2,
                    fields,
                    body,
                    retries=0,
                    timeout_s=self._access.send_timeout_s,
                )
            except RefusedError as error:
                if error.code not in MAY_SUCCEED:
                    raise
                problem = error
            except ReportError as error:
                problem = error
            else:
                return
        assert problem is not None
        raise problem

    def _body_of(self, message: Outgoing) -> tuple[bytes, int]:
        body, sys_flag = message.body, 0
        over = self._access.compress_over
        if over is not None and len(body) >= over:
            body, sys_flag = zlib.compress(body), COMPRESSED
        most = self._access.message_bytes_max
        if len(body) > most:
            raise ReportError(
                f"A message for {message.topic} has a body of {len(body):,} bytes, more than the "
                f"{most:,} that rocketmq.maxMessageSize allows. If the brokers' maxMessageSize is "
                "larger, raise the option."
            )
        return body, sys_flag

    def _fields(self, topic: str, queue_id: int, sys_flag: int, text: str) -> dict[str, str]:
        # Each field has a single-letter name, in this order.
        return {
            "a": self._group,
            "b": topic,
            "c": names.AUTO_CREATE_TOPIC_KEY_TOPIC,
            "d": str(DEFAULT_TOPIC_QUEUE_NUMS),
            "e": str(queue_id),
            "f": str(sys_flag),
            "g": str(int(datetime.now(UTC).timestamp() * 1000)),
            "h": "0",
            "i": text,
            "j": "0",
            "k": "false",
            "m": "false",
        }


def java_hash(text: str) -> int:
    """Return the result of Java's String.hashCode."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def check_properties(found: Mapping[str, str]) -> None:
    """Check that a broker can store the properties unchanged.

    Raises:
        ReportError: a name is empty, a name or value contains a separator character, or the
            properties are too long in total.
    """
    try:
        properties.require_sendable(found)
    except PropertiesError as error:
        raise ReportError(f"A message can't be sent because {error}.") from error
    size = len(properties.encode(found).encode())
    if size > properties.PROPERTIES_BYTES_MAX:
        raise ReportError(
            f"The properties of a message have {size} bytes; at most "
            f"{properties.PROPERTIES_BYTES_MAX} can be sent."
        )
