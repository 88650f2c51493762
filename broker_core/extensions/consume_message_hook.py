"""ConsumeMessageHook: observes which messages consumers get, and the outcome.

Source: broker/mqtrace/ConsumeMessageHook.java, ConsumeMessageContext.java,
PullMessageProcessor.java (4.9.7); for CONSUMER_SEND_MSG_BACK as AbstractSendMessageProcessor.java
(5.3.3) calls it, when the outcome is known. Differs: `consume_message_after` is also called for
committed offsets, as in older versions; the billing fields are missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

CONSUME_SUCCESS = "CONSUME_SUCCESS"
RECONSUME_LATER = "RECONSUME_LATER"


@dataclass(slots=True, kw_only=True)
class ConsumeMessageContext:
    """One answered pull, one committed offset, or one message sent back."""

    request_code: int
    """11 or 361 (a pull), 15 (an offset was committed, also by a pull), 36 (sent back)."""
    consumer_group: str
    topic: str
    """As named by the consumer; for a message sent back, the topic it was consumed from."""
    namespace: str
    """The topic's namespace, or for a message sent back, the group's; empty without one."""
    queue_id: int
    """-1 for a message that is sent back."""
    client_host: str
    """The consumer, "ip:port"."""
    store_host: str
    """This broker, "ip:port"."""
    success: bool
    """Whether a pull found messages, the offset was stored, or the message is in the retry topic.
    """
    status: str
    """For a pull, the GetMessageStatus (FOUND, NO_MATCHED_MESSAGE, ...); CONSUME_SUCCESS;
    RECONSUME_LATER.
    """
    code: int
    """The answer's ResponseCode."""
    queue_offset: int = -1
    """The offset of the pull, or the offset before a commit; -1 for a group's first."""
    next_begin_offset: int = -1
    """The offset for the next pull, or the committed offset."""
    message_count: int = 0
    """Number of messages returned."""
    body_length: int = 0
    """Size of the returned records in bytes."""
    message_ids: Mapping[str, int] | None = None
    """For a message sent back: its ID and its offset in the log."""


class ConsumeMessageHook(Protocol):
    """Called for pulls, committed offsets and messages sent back.

    Precisely: for each answered PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361), for each committed
    offset of a group (UPDATE_CONSUMER_OFFSET, 15, and pulls that commit), and for each
    CONSUMER_SEND_MSG_BACK (36) that names its message.

    It is called for a parked pull when the pull is answered, but not for a pull that is refused (no
    topic, no group) or has to be repeated because its messages are cold.

    The broker calls hooks on the event loop, in the order of the configuration: a slow or blocking
    call delays every client. Any exception except AbortProcessError from `consume_message_before`
    is logged once, counted, and has no effect on the consumer.
    """

    interface_version: int

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        """Called before a pull is answered.

        Raises:
            AbortProcessError: the pull is answered with this code and remark instead. Consumers ask
                again after a few seconds: to block messages for good, refuse them when they are
                sent.
        """
        ...

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        """Called after an offset was committed, or a message sent back."""
        ...
