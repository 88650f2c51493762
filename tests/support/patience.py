"""Limits far beyond what a machine stalls: tests that are about none of them run with these."""

from __future__ import annotations

PATIENCE_MS = 60_000
PATIENCE_S = PATIENCE_MS / 1_000
PATIENT: dict[str, object] = {
    # By default a send that waits for 200 ms is refused, and each after one that took a second.
    "waitTimeMillsInSendQueue": PATIENCE_MS,
    "waitTimeMillsInPullQueue": PATIENCE_MS,
    "osPageCacheBusyTimeOutMills": PATIENCE_MS,
    # By default a new topic is no longer announced before it is answered.
    "registerBrokerTimeoutMills": PATIENCE_MS,
}
"""Keys of a broker, ours or the real one."""
