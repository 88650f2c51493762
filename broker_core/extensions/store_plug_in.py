"""MessageStorePlugIn: wraps the store that the broker uses.

Source: broker/plugin/AbstractPluginMessageStore.java, MessageStoreFactory.java,
store/CommitLogDispatcher.java (4.9.7).
Differs: five methods instead of forty; delayed deliveries go through the plug-ins, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from broker_core.extensions.context import ExtensionContext
    from broker_core.store.results import (
        GetMessageResult,
        MessageFilter,
        PutBatchResult,
        PutMessageResult,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PutMessage:
    """A message to be stored. Use `dataclasses.replace` to change it."""

    topic: str
    """The topic to store the message in, which may be internal (SCHEDULE_TOPIC_XXXX,
    RMQ_SYS_TRANS_HALF_TOPIC, RMQ_SYS_TRANS_OP_HALF_TOPIC): leave those messages unchanged. Neither
    topic nor queue_id may be replaced, because the broker keeps state for them.
    """
    queue_id: int
    body: bytes | memoryview
    properties: Mapping[str, str]
    """The message is indexed by TAGS, KEYS and UNIQ_KEY in it."""
    flag: int
    sys_flag: int
    born_timestamp: int
    """Milliseconds since the epoch."""
    born_host: bytes
    """4 or 16 bytes of address, 4 of port."""
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PutBatch:
    """Messages to be stored together; the body is RocketMQ's batch (formats/batch.py)."""

    topic: str
    queue_id: int
    body: bytes | memoryview
    properties: str
    """Added to the properties of each message, in the text form of message/properties.py."""
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    reconsume_times: int = 0


class MessagePort(Protocol):
    """The interface of the store, or of a plug-in, to the plug-in in front of it.

    All methods are called on the event loop; look_message also before the loop runs, while the
    broker loads. Only get_message may wait, by returning an awaitable.
    """

    def put_message(self, message: PutMessage) -> PutMessageResult:
        """Store a message; the result's status is PUT_OK, or the reason for refusal.

        The message need not be durable yet when this returns.
        """
        ...

    def put_batch(self, batch: PutBatch) -> PutBatchResult:
        """Store all messages of a batch, or nothing."""
        ...

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_msg_nums: int,
        message_filter: MessageFilter | None,
    ) -> GetMessageResult | Awaitable[GetMessageResult]:
        """Return messages of a queue from an offset on; an awaitable when the disk is needed.

        `buffers` of the result are read-only views of whole records (formats/record.py) in the log;
        message_count and byte_count give their number and size. Called by pulls and by the broker's
        delayed deliveries.
        """
        ...

    def look_message(self, commit_log_offset: int) -> memoryview | None:
        """Return the record that begins at a log offset, or None."""
        ...

    def query_message(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int
    ) -> list[memoryview]:
        """Return records of a topic that have a key, stored in [begin_ms, end_ms]."""
        ...


class MessageStorePlugIn(MessagePort, Protocol):
    """A MessagePort in front of another one, created with (context, next_port).

    `messageStorePlugIn` names plug-ins as in RocketMQ: the broker calls the first, and the last
    calls the store itself.

    A plug-in with a method `on_dispatch` is also a MessageDispatcher.

    An exception, or a result of another type, is logged once and counted. Then a put is answered
    UNKNOWN_ERROR (SYSTEM_ERROR for the client), even if the plug-in passed it on; a get finds
    nothing this time; look_message and query_message find nothing.
    """

    interface_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchedMessage:
    """A message that the store has added to its queue and its index."""

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    """Where its record begins in the log, for `look_message`."""
    properties: Mapping[str, str]
    body_size: int
    """Bytes."""
    sys_flag: int
    store_timestamp: int
    """Milliseconds since the epoch."""


class MessageDispatcher(Protocol):
    """A plug-in that is notified of every message in the log, like a CommitLogDispatcher.

    It is called on the event loop for each message in log order, and for each message of a batch,
    after the store has put it and before put_message or put_batch returns: the message need not be
    durable or readable yet. Messages that a start recovers aren't dispatched again. An exception is
    logged once and counted; the put isn't affected.
    """

    def on_dispatch(self, message: DispatchedMessage) -> None:
        """Handle a message."""
        ...


class AbstractPluginMessageStore:
    """A plug-in that passes everything on: derive from it and override what you need.

    Attributes:
        context: the broker's address and the plug-in's options.
        next: the store, or the next plug-in.
    """

    interface_version = 1

    def __init__(self, context: ExtensionContext, next_port: MessagePort) -> None:
        self.context = context
        self.next = next_port

    def put_message(self, message: PutMessage) -> PutMessageResult:
        return self.next.put_message(message)

    def put_batch(self, batch: PutBatch) -> PutBatchResult:
        return self.next.put_batch(batch)

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_msg_nums: int,
        message_filter: MessageFilter | None,
    ) -> GetMessageResult | Awaitable[GetMessageResult]:
        return self.next.get_message(topic, queue_id, queue_offset, max_msg_nums, message_filter)

    def look_message(self, commit_log_offset: int) -> memoryview | None:
        return self.next.look_message(commit_log_offset)

    def query_message(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int
    ) -> list[memoryview]:
        return self.next.query_message(topic, key, max_num, begin_ms, end_ms)
