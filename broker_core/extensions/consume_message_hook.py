"""ConsumeMessageHook: hears what consumers get, and what they do with it.

Source: broker/mqtrace/ConsumeMessageHook.java, ConsumeMessageContext.java,
PullMessageProcessor.java (4.9.7); of CONSUMER_SEND_MSG_BACK as AbstractSendMessageProcessor.java
(5.3.3) calls it, when the outcome is known. Differs: `consume_message_after` is called for offsets
that are committed as well, as older versions did; nobody is billed, so there are no commercial
facts.
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
    """One pull that is answered, one offset that is committed, or one message given back."""

    request_code: int
    """11 or 361 (a pull), 15 (an offset is committed, also by a pull), 36 (given back)."""
    consumer_group: str
    topic: str
    """As the consumer named it; of a message given back the topic it was consumed from."""
    namespace: str
    """Of the topic, of a message given back that of the group; empty without one."""
    queue_id: int
    """-1 for a message that is given back."""
    client_host: str
    """The consumer, "ip:port"."""
    store_host: str
    """This broker, "ip:port"."""
    success: bool
    """A pull found messages; the offset is stored; the message is in the retry topic."""
    status: str
    """Of a pull the GetMessageStatus (FOUND, NO_MATCHED_MESSAGE, ...); CONSUME_SUCCESS;
    RECONSUME_LATER."""
    code: int
    """The answer's ResponseCode."""
    queue_offset: int = -1
    """From where was pulled; the offset before a commit, -1 for a group's first."""
    next_begin_offset: int = -1
    """Where the next pull goes on; the offset that was committed."""
    message_count: int = 0
    """Messages that are handed out."""
    body_length: int = 0
    """Bytes of the records that are handed out."""
    message_ids: Mapping[str, int] | None = None
    """Of a message given back: its id and its offset in the log."""


class ConsumeMessageHook(Protocol):
    """Hears of each answered PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361), of each committed
    offset of a group (UPDATE_CONSUMER_OFFSET, 15, and pulls that commit), and of each
    CONSUMER_SEND_MSG_BACK (36) that names its message.

    It hears of a parked pull when the pull is answered, and does not hear of a pull that is refused
    (no topic, no group) or has to ask again because its messages are cold.

    The broker calls hooks on the event loop, in the order of the configuration: a call that takes
    long or waits holds up every client. Any exception but AbortProcessError from
    `consume_message_before` is logged once, counted, and changes nothing for the consumer.
    """

    interface_version: int

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        """Before the answer of a pull leaves.

        Raises:
            AbortProcessError: the pull is answered with this code and remark instead. Consumers
                ask again after some seconds: messages that are never to be read should rather be
                refused when they are sent.
        """
        ...

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        """After an offset was committed, or a message given back."""
        ...
