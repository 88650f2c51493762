from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.listening.peer_log import LOG_LINES_PER_WINDOW, PeerLog
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    import pytest


def test_a_peer_cannot_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    log = PeerLog(clock)

    for _ in range(LOG_LINES_PER_WINDOW + 40):
        log.report("connection closed", "10.0.0.1:5", "garbage")

    assert len(caplog.messages) == LOG_LINES_PER_WINDOW
    assert caplog.messages[0] == "connection closed peer=10.0.0.1:5 reason=garbage"
    caplog.clear()
    clock.advance_ms(10_000)
    log.report("connection closed", "10.0.0.1:5", "garbage")
    assert caplog.messages[0].endswith("not_logged=40")
    assert len(caplog.messages) == 2
