"""The permissions for a message that a request finds without naming its topic.

Such a request contains a log offset, or refers to a half message. It needs permissions on the
message's topic, which is known only after reading the message. These rules find the topic:

- A message in SCHEDULE_TOPIC_XXXX, RMQ_SYS_TRANS_HALF_TOPIC or rmq_sys_wheel_timer belongs to the
  topic that the broker wrote to its REAL_TOPIC. In any other topic a producer may have written that
  property itself.
- A message that was parked in TRANS_CHECK_MAX_TIME_TOPIC was never committed: SUB on its real
  topic isn't enough to read it. Like the op messages it needs a permission on the topic it is in,
  which no default permission covers (`account.BROKERS_OWN_TOPICS`).
- A message in a retry topic belongs to its group, and a message in a dead-letter topic to that
  topic, as for pulls.
- Accounts have no permissions on producer groups, and a record has no account: any account that may
  send to the topic of a half message, and names its producer group, may end the transaction.

Source: Trebuchet's own rules; RocketMQ requires only an account.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.access.rules import Need
from broker_core.message import names

if TYPE_CHECKING:
    from broker_core.message.message import MessageExt

WAITING_TOPICS = frozenset(
    {
        names.RMQ_SYS_SCHEDULE_TOPIC,
        names.RMQ_SYS_TRANS_HALF_TOPIC,
        names.RMQ_SYS_TIMER_TOPIC,
    }
)
"""Only the broker stores messages here, with their destination in REAL_TOPIC."""


def need_of(message: MessageExt, action: int) -> Need:
    """Return the permission for an action on a message; a retry topic represents its group."""
    topic = message.topic
    if topic in WAITING_TOPICS:
        topic = message.properties.get(names.PROPERTY_REAL_TOPIC, topic)
    return Need(topic, action)
