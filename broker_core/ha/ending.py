"""Ending: why a running broker ends by itself, and whether it starts again in the same process."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)


class Ending:
    """Asked for once. Event loop only.

    Attributes:
        is_asked: whether the broker has to end.
        failure: one sentence for the operator; empty for a broker that starts again.
    """

    def __init__(self) -> None:
        self.is_asked = False
        self.failure = ""
        self._listener: Callable[[], None] | None = None

    def when_asked(self, listener: Callable[[], None]) -> None:
        """Call the listener when the broker has to end, at once if it has to already."""
        self._listener = listener
        if self.is_asked:
            listener()

    def start_again(self, reason: str) -> None:
        """Have the broker stopped and started again in its process, from its files."""
        if not self.is_asked:
            logger.warning("the broker starts again: %s", reason)
            self._ask()

    def fail(self, sentence: str) -> None:
        """Have the broker stopped."""
        if not self.is_asked:
            self.failure = sentence
            self._ask()

    def _ask(self) -> None:
        self.is_asked = True
        if self._listener is not None:
            self._listener()
