"""The delay levels of messageDelayLevel.

A message of level n waits in queue n - 1 of SCHEDULE_TOPIC_XXXX; where it goes when it is due is in
its properties.

Source: store/schedule/ScheduleMessageService.java parseDelayLevel, store/CommitLog.java
asyncPutMessage (4.9.7).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.message.names import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    RMQ_SYS_SCHEDULE_TOPIC,
)
from broker_core.store.message_store import parse_delay_levels

if TYPE_CHECKING:
    from collections.abc import Mapping

FIRST_RETRY_LEVEL = 3
"""A consumer's first retry waits at this level, each further one a level longer."""
_JAVA_INT = re.compile(r"[+-]?[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class DelayLevels:
    """The delays in milliseconds; level 1 is the first. Any thread; holds no state."""

    delays_ms: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> DelayLevels:
        """Read messageDelayLevel, which the configuration has checked."""
        return cls(tuple(parse_delay_levels(text)))

    @property
    def max_level(self) -> int:
        return len(self.delays_ms)

    def delay_ms(self, level: int) -> int:
        """Return how long a level waits; one that was configured once waits as the last does."""
        return self.delays_ms[min(level, self.max_level) - 1]

    def hold(self, properties: dict[str, str], topic: str, queue_id: int) -> tuple[str, int] | None:
        """Return where a message waits that asks for a delay, None when it does not.

        The properties get the level that is in force and where the message goes when it is due.

        Raises:
            ValueError: the level is no number.
        """
        level = min(requested_level(properties), self.max_level)
        if level <= 0:
            return None
        properties[PROPERTY_DELAY_TIME_LEVEL] = str(level)
        properties[PROPERTY_REAL_TOPIC] = topic
        properties[PROPERTY_REAL_QUEUE_ID] = str(queue_id)
        return RMQ_SYS_SCHEDULE_TOPIC, level - 1


def requested_level(properties: Mapping[str, str]) -> int:
    """Return the level that a message asks for; 0 and less are none.

    Raises:
        ValueError: it is no number.
    """
    text = properties.get(PROPERTY_DELAY_TIME_LEVEL, "0")
    if not _JAVA_INT.fullmatch(text):
        raise ValueError(f"the property {PROPERTY_DELAY_TIME_LEVEL} is no number: {text[:32]!r}")
    return int(text)
