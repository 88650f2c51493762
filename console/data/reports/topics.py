"""Whether a topic exists or existed; its messages may still be in the log or the lake."""

from __future__ import annotations

import logging

from broker_core.message import names
from console.gateway.access import gateway
from console.gateway.errors import GatewayError
from console.observe.history.access import history_store
from console.observe.history.database import HistoryError
from console.observe.history.metrics import TOPIC

logger = logging.getLogger(__name__)


def exists(topic: str) -> bool:
    """Return False only if brokers respond and neither they nor the history have the topic."""
    if names.is_system_topic(topic):
        return True
    try:
        if topic in gateway().topics.all():
            return True
        return bool(history_store().find(TOPIC, [topic]))
    except (GatewayError, HistoryError):
        logger.info("topic not checked, no broker responded topic=%s", topic)
        return True
