"""SendMessageHook: observes each message that a producer sends.

Source: broker/mqtrace/SendMessageHook.java, SendMessageContext.java (4.9.7), and for refusals
AbstractSendMessageProcessor.java (5.3.3): 4.9 can't refuse, and never calls the second half for a
message. Differs: the billing fields are missing; a hook doesn't add MSG_REGION and TRACE_ON to the
stored message.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(slots=True, kw_only=True)
class SendMessageContext:
    """A send: the fields known before it, then its outcome.

    Both methods of all hooks get the same object. Hooks may write only to `notes`; other changes
    have no effect.
    """

    request_code: int
    """10, 310, 320 (a batch), 324 or 325 (a reply)."""
    producer_group: str
    topic: str
    """As named by the producer, with its namespace and %RETRY%, even while the message is in an
    internal topic: a delayed message, a half message.
    """
    namespace: str
    """The topic's namespace; empty without one."""
    queue_id: int
    """As requested, -1 for any; after the send the queue that was used."""
    properties: Mapping[str, str]
    """Read-only; for a batch, the properties of the batch, not of its messages."""
    msg_unique_key: str
    """UNIQ_KEY; empty without one."""
    is_batch: bool
    body_length: int
    """Bytes as received: compressed if the producer compressed them."""
    born_host: str
    """The producer, "ip:port"."""
    born_timestamp: int
    """Milliseconds since the epoch, by the producer's clock."""
    broker_addr: str
    broker_region_id: str
    notes: dict[str, object] = field(default_factory=dict)
    """For hooks: values saved before the send are available after it."""

    # Set after the send.
    is_success: bool = False
    """Whether the message is stored; false for FLUSH_DISK_TIMEOUT (10), although it is stored."""
    code: int = -1
    """The answer's ResponseCode."""
    error_msg: str | None = None
    """The answer's remark."""
    msg_id: str | None = None
    """The offset ID; for a batch all of them, separated by commas. None if it wasn't stored."""
    queue_offset: int | None = None
    """For a batch, the offset of its first message."""
    cost_ms: float = 0.0
    """From just before the first hook to the answer; with SYNC_FLUSH this includes the flush."""


class SendMessageHook(Protocol):
    """Called for each message that a client sends.

    That is SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320), SEND_REPLY_MESSAGE
    (324) and SEND_REPLY_MESSAGE_V2 (325), on both ports.

    It isn't called for messages that the broker itself puts: delayed deliveries, commits,
    consumers' retries by CONSUMER_SEND_MSG_BACK.

    The broker calls hooks on the event loop, in the order of the configuration: a slow or blocking
    call (files, networks, locks) delays every client, and belongs in the extension's own thread.
    Any exception except AbortProcessError from `send_message_before` is logged once, counted, and
    has no effect on the message.
    """

    interface_version: int

    def send_message_before(self, context: SendMessageContext) -> None:
        """Called before anything is checked or stored.

        Raises:
            AbortProcessError: the message is refused with this code and remark. Later hooks aren't
                called, nor is `send_message_after` for this message. Java producers try another
                broker on 1, 14, 16 and 17, and fail immediately on 13 (MESSAGE_ILLEGAL).
        """
        ...

    def send_message_after(self, context: SendMessageContext) -> None:
        """Called when the answer is ready, stored or refused. The answer can't be changed."""
        ...
