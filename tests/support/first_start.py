"""The tables of a new broker, before its first use."""

from __future__ import annotations

import json
from typing import Any

from tests.support.raw_remoting import RawClient

GET_ALL_TOPIC_CONFIG = 21


def topics_of(port: int) -> dict[str, Any]:
    """Return the table of a broker's topics."""
    with RawClient(port) as client:
        body = client.ask(GET_ALL_TOPIC_CONFIG).body
    table: dict[str, Any] = json.loads(body)["topicConfigTable"]
    return table
