"""Timeouts far longer than any stall of the machine, for tests that don't cover timeouts."""

from __future__ import annotations

PATIENCE_MS = 60_000
PATIENCE_S = PATIENCE_MS / 1_000
PATIENT: dict[str, object] = {
    # By default the broker rejects a send that waits for 200 ms, and all sends after a slow one (1
    # s).
    "waitTimeMillsInSendQueue": PATIENCE_MS,
    "waitTimeMillsInPullQueue": PATIENCE_MS,
    "osPageCacheBusyTimeOutMills": PATIENCE_MS,
    # By default the broker stops announcing a new topic before the answer.
    "registerBrokerTimeoutMills": PATIENCE_MS,
}
"""Configuration keys of a broker, ours or the real one."""
