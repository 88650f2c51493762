"""Record why a running broker stops itself, and whether it restarts in the same process."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)


class Shutdown:
    """A shutdown request, made once. Event loop only.

    Attributes:
        is_requested: whether the broker has to end.
        failure: one sentence for the operator; empty for a broker that restarts.
    """

    def __init__(self) -> None:
        self.is_requested = False
        self.failure = ""
        self._listener: Callable[[], None] | None = None

    def on_request(self, listener: Callable[[], None]) -> None:
        """Call the listener when the broker has to end, immediately if it already has to."""
        self._listener = listener
        if self.is_requested:
            listener()

    def restart(self, reason: str) -> None:
        """Restart the broker in its process, from its files."""
        if not self.is_requested:
            logger.warning("broker restarting reason=%s", reason)
            self._ask()

    def fail(self, sentence: str) -> None:
        """Stop the broker."""
        if not self.is_requested:
            self.failure = sentence
            self._ask()

    def _ask(self) -> None:
        self.is_requested = True
        if self._listener is not None:
            self._listener()
