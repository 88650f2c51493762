"""How far back each queue of a topic reaches: the store time of its first message."""

from __future__ import annotations

import logging
from hashlib import sha256
from typing import TYPE_CHECKING

from django.core.cache import cache

from console.gateway.access import gateway
from console.gateway.errors import GatewayError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from console.gateway.answers import QueueStatus
    from console.lib.stored import BrokerQueue

logger = logging.getLogger(__name__)

QUEUES_QUERIED_MAX = 64
"""Each queue takes one request."""
KEPT_S = 60


def oldest_of(topic: str, status: Sequence[QueueStatus]) -> dict[BrokerQueue, int]:
    """Return the store time of the first message by queue, at most a minute old.

    Empty if there are more than QUEUES_QUERIED_MAX queues, or if no broker responds.
    """
    key = f"topics.oldest.{sha256(topic.encode()).hexdigest()}"
    found: dict[BrokerQueue, int] | None = cache.get(key)
    if found is None:
        asked = [row for row in status if row.message_count]
        if len(asked) > QUEUES_QUERIED_MAX:
            return {}
        try:
            answers = gateway().topics.oldest(asked, topic)
        except GatewayError as error:
            logger.info("retained range unknown topic=%r error=%s", topic, error)
            return {}
        found = {queue: at_ms for queue, at_ms in answers.items() if at_ms is not None}
        cache.set(key, found, KEPT_S)
    # Skip queues that have been emptied since.
    full = {row.queue for row in status if row.message_count}
    return {queue: at_ms for queue, at_ms in found.items() if queue in full}
