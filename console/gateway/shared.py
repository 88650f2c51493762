"""Shared: one reading for all requests within a short time."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from console.gateway.errors import GatewayError

if TYPE_CHECKING:
    from collections.abc import Callable

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Read(Generic[Value]):
    """The value, or the error."""

    at_ms: int
    value: Value | None
    problem: GatewayError | None


class Shared(Generic[Value]):
    """Values by language, each cached for `kept_ms`; the first caller reads. Thread-safe.

    Failures are shared too: 100 viewers of a hung broker wait for one timeout.
    """

    def __init__(self, kept_ms: int) -> None:
        self._kept_ms = kept_ms
        self._lock = threading.Lock()
        self._kept: dict[str, Read[Value]] = {}

    def get(self, language: str, now_ms: int, read: Callable[[], Value]) -> Value:
        """Return the value for a language.

        Raises:
            GatewayError: the reading failed.
        """
        with self._lock:
            kept = self._kept.get(language)
            if kept is None or not 0 <= now_ms - kept.at_ms < self._kept_ms:
                kept = self._kept[language] = self._read(now_ms, read)
        if kept.value is None:
            assert kept.problem is not None
            raise kept.problem
        return kept.value

    def peek(self, language: str, now_ms: int, within_ms: int) -> Value | None:
        """Return a value that was read within this time, or None; never read."""
        kept = self._kept.get(language)
        is_recent = kept is not None and 0 <= now_ms - kept.at_ms < within_ms
        return kept.value if kept is not None and is_recent else None

    def forget(self) -> None:
        with self._lock:
            self._kept.clear()

    def _read(self, now_ms: int, read: Callable[[], Value]) -> Read[Value]:
        try:
            return Read(now_ms, read(), None)
        except GatewayError as error:
            return Read(now_ms, None, error)
