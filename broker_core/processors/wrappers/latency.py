"""Latency of sends and pulls, measured around their handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.codes import RequestCode
from broker_core.protocol.command import RemotingCommand
from broker_core.remoting.overload import PULL_CODES, SEND_CODES

if TYPE_CHECKING:
    from broker_core.remoting.dispatch import Handler
    from broker_core.stats.latency import Latency

TURN_CODES = frozenset(
    {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
)
"""Measured per turn of the event loop: two clock readings per message would cost too much."""
ANSWERS = (RemotingCommand, bytes)
"""The types of an immediate answer; anything else is awaited."""


def time_requests(table: dict[int, Handler], put: Latency, get: Latency) -> None:
    """Wrap the table's sends and pulls, except those of TURN_CODES."""
    for codes, latency in ((SEND_CODES, put), (PULL_CODES, get)):
        for code in codes:
            if code in table and code not in TURN_CODES:
                table[code] = latency.timed(table[code], ANSWERS)
