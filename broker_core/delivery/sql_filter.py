r"""Filters of SQL92 subscriptions, using the properties in a record.

If a message has a bitmap that is newer than the subscription, the bitmap says whether to read the
record. It never says that a message matches.

The filter looks up properties by name in the record's bytes: a subscription needs two or three of
them, and decoding all of them would cost more than the evaluation. It decodes them all if the text
is long or the subscription needs many.

Source: broker/filter/ExpressionMessageFilter.java, ExpressionForRetryMessageFilter.java (4.9.7).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from broker_core.delivery.sql92.parser import compile_expression
from broker_core.errors import CorruptRecordError
from broker_core.formats.record import examine
from broker_core.message.names import PROPERTY_RETRY_TOPIC
from broker_core.message.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, decode
from broker_core.message.subscription import EXPRESSION_TYPE_SQL92
from broker_core.store.results import FILTERED_UNITS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.delivery.sql92.expression import Expression
    from broker_core.formats.cq_ext_unit import CqExtUnit
    from broker_core.store.results import MessageFilter

NEEDLES_KEPT = 4096
LOOKED_THROUGH_BYTES = 1_024
LOOKED_THROUGH_GETS = 8
"""Longer texts, and texts with more lookups, are decoded completely: one search can take time
proportional to the text's length times the name's.
"""
EVALUATIONS_MAX = 4 * FILTERED_UNITS_MAX
"""Approximate limit of comparisons in one get, which runs on the event loop; the next pull
continues.
"""
UNITS_MIN = 16
RETRY_UNITS = 64
NEVER = (1 << 63) - 1

_SEPARATOR = PROPERTY_SEPARATOR.encode()


class RecordProperties:
    """The properties of one record, read by name.

    `gets` is the number of properties that the caller will look up. `get` returns the same value as
    `properties.decode`.
    """

    __slots__ = ("_data", "_table")

    def __init__(self, record: memoryview, gets: int = 1) -> None:
        head = examine(record, 0, len(record), None, check_crc=False)
        text = record[head.properties_from : head.properties_to]
        # Separators at both ends make the first and last properties look like the others.
        self._data = b"".join((_SEPARATOR, text, _SEPARATOR))
        self._table: dict[str, str] | None = None
        if len(text) > LOOKED_THROUGH_BYTES or gets > LOOKED_THROUGH_GETS:
            self._decode()

    def get(self, name: str) -> str | None:
        if self._table is not None:
            return self._table.get(name)
        data = self._data
        needle = _needle(name)
        # The last value of a name counts.
        at = data.rfind(needle)
        if at < 0:
            return None
        start = at + len(needle)
        end = data.index(_SEPARATOR, start)
        if end > start:
            return data[start:end].decode("utf-8", "replace")
        # An empty value counts as missing; the name may have an earlier value.
        return self._decode().get(name)

    def _decode(self) -> dict[str, str]:
        table = self._table = decode(self._data.decode("utf-8", "replace"))
        return table


class FilterBits(NamedTuple):
    """The bits of a registered filter in the bitmaps of messages."""

    bit_map: bytes
    """A bitmap with this filter's bits set."""
    born_time: int
    """Bitmaps of messages stored until then don't include this filter."""


class SqlFilter:
    """Matches records with an expression. Holds no state."""

    __slots__ = ("_bits", "_born_time", "_expression", "_size", "units_max")

    def __init__(self, expression: Expression, bits: FilterBits | None = None) -> None:
        self._expression = expression
        # Without bits the record decides.
        self._bits = 0 if bits is None else int.from_bytes(bits.bit_map, "big")
        self._size = 0 if bits is None else len(bits.bit_map)
        self._born_time = NEVER if bits is None else bits.born_time
        units = EVALUATIONS_MAX // (1 + expression.comparisons)
        self.units_max = min(FILTERED_UNITS_MAX, max(units, UNITS_MIN))

    def by_tags_code(self, tags_code: int) -> bool:
        """Return True, because only the record can decide."""
        return True

    def by_ext_unit(self, unit: CqExtUnit) -> bool:
        if unit.store_timestamp <= self._born_time or len(unit.bit_map) != self._size:
            return True
        return int.from_bytes(unit.bit_map, "big") & self._bits == self._bits

    def by_record(self, record: memoryview) -> bool:
        properties = _properties(record, self._expression.comparisons)
        return properties is not None and self._expression.matches(properties.get)


class RetryFilter:
    """Matches records of a retry topic with the group's filter for their original topic.

    If the group has no such filter, a message matches: the group may subscribe to its topic by
    tags.
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

    def by_ext_unit(self, unit: CqExtUnit) -> bool:
        return self._subscribed is None or self._subscribed.by_ext_unit(unit)

    def by_record(self, record: memoryview) -> bool:
        properties = _properties(record, 1)
        if properties is None:
            return False
        expression = self._expression_of(properties.get(PROPERTY_RETRY_TOPIC) or "")
        if expression is None:
            return True
        properties = _properties(record, expression.comparisons)
        return properties is not None and expression.matches(properties.get)


def compile_filter(expression_type: str, text: str) -> Expression:
    """Return the compiled expression of a subscription with a type other than tags.

    Raises:
        ValueError: the type is unknown, or the expression isn't of that type.
    """
    if expression_type != EXPRESSION_TYPE_SQL92:
        raise ValueError(f"the expression type {expression_type!r} is unknown")
    return compile_expression(text)


def _properties(record: memoryview, gets: int) -> RecordProperties | None:
    try:
        return RecordProperties(record, gets)
    except CorruptRecordError:
        return None


@functools.lru_cache(NEEDLES_KEPT)
def _needle(name: str) -> bytes:
    return f"{PROPERTY_SEPARATOR}{name}{NAME_VALUE_SEPARATOR}".encode()
