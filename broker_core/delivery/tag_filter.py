"""The tag filter of a subscription: by hash in the broker, by text in the client.

Source: store/DefaultMessageFilter.java, broker/filter/ExpressionMessageFilter.java (4.9.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.formats.cq_ext_unit import ADDRESS_MAX
from broker_core.message.subscription import build_subscription
from broker_core.store.results import FILTERED_UNITS_MAX

if TYPE_CHECKING:
    from broker_core.formats.cq_ext_unit import CqExtUnit
    from broker_core.message.subscription import SubscriptionData


class TagFilter:
    """Matches ConsumeQueue units by their tags_code. Holds no state.

    Attributes:
        codes: hashes of the subscribed tags.
    """

    __slots__ = ("codes",)

    units_max = FILTERED_UNITS_MAX

    def __init__(self, codes: frozenset[int]) -> None:
        self.codes = codes

    @classmethod
    def of(cls, subscription: SubscriptionData) -> TagFilter | None:
        """Return the subscription's filter, or None if it accepts everything.

        The hashes are computed from the tags: see build_subscription.
        """
        try:
            built = build_subscription(subscription.topic, subscription.sub_string, 0)
        except ValueError:
            return cls(frozenset())
        return cls(frozenset(built.code_set)) if built.code_set else None

    def by_tags_code(self, tags_code: int) -> bool:
        return tags_code in self.codes or tags_code <= ADDRESS_MAX

    def by_ext_unit(self, unit: CqExtUnit) -> bool:
        return unit.tags_code in self.codes

    def by_record(self, record: memoryview) -> bool:
        """Return True, because the client distinguishes two tags with the same hash."""
        return True
