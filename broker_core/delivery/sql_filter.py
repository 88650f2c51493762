r"""The filters of SQL92 subscriptions: by the properties in a record.

Properties are looked up by name in the record's bytes: a subscription asks for two or three of
them, and to take them all apart would cost more than the evaluation.

Source: broker/filter/ExpressionMessageFilter.java, ExpressionForRetryMessageFilter.java (4.9.7).
Differs: the bitmaps of ConsumeQueue extension files are not read; every record is evaluated.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from broker_core.delivery.sql92.parser import compile_expression
from broker_core.errors import CorruptRecordError
from broker_core.formats.record import examine
from broker_core.message.names import PROPERTY_RETRY_TOPIC
from broker_core.message.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from broker_core.message.subscription import EXPRESSION_TYPE_SQL92
from broker_core.store.results import FILTERED_UNITS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.delivery.sql92.expression import Expression
    from broker_core.store.results import MessageFilter

NEEDLES_KEPT = 4096
EVALUATIONS_MAX = 4 * FILTERED_UNITS_MAX
"""Comparisons in one get, about: it runs on the event loop, and a pull goes on where it ended."""
UNITS_MIN = 16
RETRY_UNITS = 64

_SEPARATOR = PROPERTY_SEPARATOR.encode()


class RecordProperties:
    """The properties of one record, read by name. `get` says what `properties.decode` would."""

    __slots__ = ("_data",)

    def __init__(self, record: memoryview) -> None:
        head = examine(record, 0, len(record), None, check_crc=False)
        # A separator at each end makes the first and the last property like all others.
        text = record[head.properties_from : head.properties_to]
        self._data = b"".join((_SEPARATOR, text, _SEPARATOR))

    def get(self, name: str) -> str | None:
        data = self._data
        needle = _needle(name)
        found = None
        at = data.find(needle)
        while at >= 0:
            start = at + len(needle)
            end = data.index(_SEPARATOR, start)
            # Of a name that occurs twice the last value counts; an empty one is none.
            if end > start:
                found = data[start:end]
            at = data.find(needle, end)
        return None if found is None else found.decode("utf-8", "replace")


class SqlFilter:
    """Matches records by an expression. Holds no state."""

    __slots__ = ("_expression", "units_max")

    def __init__(self, expression: Expression) -> None:
        self._expression = expression
        units = EVALUATIONS_MAX // (1 + expression.comparisons)
        self.units_max = min(FILTERED_UNITS_MAX, max(units, UNITS_MIN))

    def by_tags_code(self, tags_code: int) -> bool:
        """Return True: only the record can tell."""
        return True

    def by_record(self, record: memoryview) -> bool:
        properties = _properties(record)
        return properties is not None and self._expression.matches(properties.get)


class RetryFilter:
    """Matches records of a retry topic by the filter that the group has for their real topic.

    Without such a filter a message matches: its topic may be subscribed to by tags.
    """

    __slots__ = ("_expression_of", "_subscribed")

    units_max = RETRY_UNITS

    def __init__(
        self, subscribed: MessageFilter | None, expression_of: Callable[[str], Expression | None]
    ) -> None:
        self._subscribed = subscribed
        self._expression_of = expression_of

    def by_tags_code(self, tags_code: int) -> bool:
        return self._subscribed is None or self._subscribed.by_tags_code(tags_code)

    def by_record(self, record: memoryview) -> bool:
        properties = _properties(record)
        if properties is None:
            return False
        expression = self._expression_of(properties.get(PROPERTY_RETRY_TOPIC) or "")
        return expression is None or expression.matches(properties.get)


def compile_filter(expression_type: str, text: str) -> Expression:
    """Return the compiled expression of a subscription that is not of tags.

    Raises:
        ValueError: the type is unknown, or the expression none of that type.
    """
    if expression_type != EXPRESSION_TYPE_SQL92:
        raise ValueError(f"the expression type {expression_type!r} is unknown")
    return compile_expression(text)


def _properties(record: memoryview) -> RecordProperties | None:
    try:
        return RecordProperties(record)
    except CorruptRecordError:
        return None


@functools.lru_cache(NEEDLES_KEPT)
def _needle(name: str) -> bytes:
    return f"{PROPERTY_SEPARATOR}{name}{NAME_VALUE_SEPARATOR}".encode()
