"""Origins: the original topic and message of a dead letter.

Source: common/message/MessageConst.java PROPERTY_DLQ_ORIGIN_TOPIC (5.3.3).
Differs: 5.3.3 reads these properties and never writes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.message import names
from broker_core.message.ids import offset_msg_id, parse_host

if TYPE_CHECKING:
    from broker_core.message.message import MessageExt


def origin_properties(message: MessageExt, group: str) -> dict[str, str]:
    """Return the properties that record the origin of a group's dead letter."""
    table = message.properties
    prefix = names.pop_retry_topic(group, "")
    if message.topic.startswith(prefix):
        topic = message.topic.removeprefix(prefix)
    else:
        topic = table.get(names.PROPERTY_RETRY_TOPIC, message.topic)
    message_id = (
        table.get(names.PROPERTY_DLQ_ORIGIN_MESSAGE_ID)
        or message.uniq_key
        or offset_msg_id(parse_host(message.store_host), message.commit_log_offset)
    )
    return {
        names.PROPERTY_RETRY_TOPIC: topic,
        names.PROPERTY_DLQ_ORIGIN_TOPIC: topic,
        names.PROPERTY_DLQ_ORIGIN_MESSAGE_ID: message_id,
    }
