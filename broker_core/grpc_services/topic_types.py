"""The message types that a topic accepts.

Source: proxy/processor/validator/DefaultTopicMessageTypeValidator.java (5.3.3).
Differs: a topic without the attribute message.type accepts every type, because topics from 4.9 and
from the console lack it; RocketMQ accepts only plain messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.errors import CallStatusError
from broker_core.grpc_messages.enums import Code, MessageType

if TYPE_CHECKING:
    from broker_core.message.topic_config import TopicConfig
    from broker_core.metadata.topics import Topics

MIXED = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)
TYPES = {
    "NORMAL": (MessageType.NORMAL,),
    "FIFO": (MessageType.FIFO,),
    "DELAY": (MessageType.DELAY,),
    "TRANSACTION": (MessageType.TRANSACTION,),
}


class TopicTypes:
    """Event loop only."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def require(self, topic: str, kind: MessageType) -> None:
        """Check that a message's topic accepts it.

        Raises:
            CallStatusError: MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, also for a missing topic.
        """
        found = self._topics.find(topic)
        if found is not None and kind in accepted_types(found):
            return
        expected = "UNSPECIFIED" if found is None else found.message_type
        raise CallStatusError(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"TopicMessageType validate failed, the expected type is {expected}, but actual type "
            f"is {kind.name}",
        )


def accepted_types(topic_config: TopicConfig) -> tuple[MessageType, ...]:
    """Return the message types that a topic accepts."""
    return TYPES.get(topic_config.message_type, MIXED)
