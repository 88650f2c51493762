"""The delay levels of messageDelayLevel.

A message of level n waits in queue n - 1 of SCHEDULE_TOPIC_XXXX; its properties have its
destination.

Source: store/schedule/ScheduleMessageService.java parseDelayLevel, store/CommitLog.java
asyncPutMessage (4.9.7).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.message.delay_levels import parse_delay_levels
from broker_core.message.names import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    RMQ_SYS_SCHEDULE_TOPIC,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

FIRST_RETRY_LEVEL = 3
"""The level of a consumer's first retry; each further retry waits one level longer."""
_JAVA_INT = re.compile(r"[+-]?[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class DelayLevels:
    """The delays in milliseconds; level 1 is the first. Any thread; holds no state."""

    delays_ms: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> DelayLevels:
        """Parse messageDelayLevel, which the configuration has checked."""
        return cls(tuple(parse_delay_levels(text)))

    @property
    def max_level(self) -> int:
        return len(self.delays_ms)

    def delay_ms(self, level: int) -> int:
        """Return the delay of a level; a level above the last has the delay of the last."""
        return self.delays_ms[min(level, self.max_level) - 1]

    def defer(
        self, properties: dict[str, str], topic: str, queue_id: int
    ) -> tuple[str, int] | None:
        """Return where a delayed message waits, or None if the message requests no delay.

        The properties get the effective level and the destination of the message.

        Raises:
            ValueError: the level isn't a number.
        """
        level = min(requested_level(properties), self.max_level)
        if level <= 0:
            return None
        properties[PROPERTY_DELAY_TIME_LEVEL] = str(level)
        properties[PROPERTY_REAL_TOPIC] = topic
        properties[PROPERTY_REAL_QUEUE_ID] = str(queue_id)
        return RMQ_SYS_SCHEDULE_TOPIC, level - 1


def requested_level(properties: Mapping[str, str]) -> int:
    """Return the level that a message requests; 0 and less mean no delay.

    Raises:
        ValueError: it isn't a number.
    """
    text = properties.get(PROPERTY_DELAY_TIME_LEVEL, "0")
    if not _JAVA_INT.fullmatch(text):
        raise ValueError(f"the property {PROPERTY_DELAY_TIME_LEVEL} is not a number: {text[:32]!r}")
    return int(text)
