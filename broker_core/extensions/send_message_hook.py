"""SendMessageHook: hears of each message that a producer sends.

Source: broker/mqtrace/SendMessageHook.java, SendMessageContext.java (4.9.7), and for refusals
AbstractSendMessageProcessor.java (5.3.3): 4.9 cannot refuse, and never calls the second half for a
message. Differs: nobody is billed, so there are no commercial facts; a hook does not put MSG_REGION
and TRACE_ON into the stored message.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(slots=True, kw_only=True)
class SendMessageContext:
    """One send: what is known before it, then what became of it.

    Both methods of all hooks get the same object. Hooks may write to `notes` only; other changes
    have no effect.
    """

    request_code: int
    """10, 310, 320 (a batch), 324 or 325 (a reply)."""
    producer_group: str
    topic: str
    """As the producer named it, with its namespace and %RETRY%, also while it waits in
    a topic of the broker's own: a deferred message, a half message."""
    namespace: str
    """Of the topic; empty without one."""
    queue_id: int
    """As asked for, -1 for any; after the send the one it went to."""
    properties: Mapping[str, str]
    """Read-only; of a batch those of the batch, not of its messages."""
    msg_unique_key: str
    """UNIQ_KEY; empty without one."""
    is_batch: bool
    body_length: int
    """Bytes as received: compressed when the producer compressed them."""
    born_host: str
    """The producer, "ip:port"."""
    born_timestamp: int
    """Milliseconds since the epoch, by the producer's clock."""
    broker_addr: str
    broker_region_id: str
    notes: dict[str, object] = field(default_factory=dict)
    """For hooks: what one notes before the send, it finds after it."""

    # After the send.
    is_success: bool = False
    """Stored; for FLUSH_DISK_TIMEOUT (10) false, although it is."""
    code: int = -1
    """The answer's ResponseCode."""
    error_msg: str | None = None
    """The answer's remark."""
    msg_id: str | None = None
    """The offset id; of a batch all of them, separated by commas. None when it was not stored."""
    queue_offset: int | None = None
    """Of the first message of a batch."""
    cost_ms: float = 0.0
    """From just before the first hook to the answer, with SYNC_FLUSH including the flush."""


class SendMessageHook(Protocol):
    """Hears of each SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320),
    SEND_REPLY_MESSAGE (324) and SEND_REPLY_MESSAGE_V2 (325), on both ports.

    It does not hear of messages that the broker puts by itself: delayed deliveries, commits,
    consumers' retries by CONSUMER_SEND_MSG_BACK.

    The broker calls hooks on the event loop, in the order of the configuration: a call that takes
    long or waits (for files, networks, locks) holds up every client, and belongs in a thread of the
    extension's own. Any exception but AbortProcessError from `send_message_before` is logged once,
    counted, and changes nothing for the message.
    """

    interface_version: int

    def send_message_before(self, context: SendMessageContext) -> None:
        """Before anything is checked or stored.

        Raises:
            AbortProcessError: the message is refused with this code and remark. Hooks behind this
                one are not called, nor is `send_message_after` for this message. Java producers
                try another broker on 1, 14, 16 and 17, and fail at once on 13 (MESSAGE_ILLEGAL).
        """
        ...

    def send_message_after(self, context: SendMessageContext) -> None:
        """When the answer is there, stored or refused. The answer cannot be changed any more."""
        ...
