"""Argon2 password hashing, limited to two hashes at a time.

A hash uses its memory only while it runs, not while it waits. Password guessing can therefore cost
the machine time, but not memory.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.contrib.auth.hashers import Argon2PasswordHasher

if TYPE_CHECKING:
    from collections.abc import Iterator

HASHES_AT_ONCE = 2
STRANGERS_AT_ONCE = 1
"""The other slot is reserved for known devices."""
STRANGERS_WAITING_MAX = 8
STRANGER_WAITS_S = 10.0

_turns = threading.BoundedSemaphore(HASHES_AT_ONCE)


class BusyError(Exception):
    """Too many requests from unknown browsers are waiting; the password was not hashed."""


class Argon2InTurn(Argon2PasswordHasher):
    """Django's Argon2 with limited concurrency and parameters for a small machine.

    OWASP recommends 19 MiB and two passes, RFC 9106 64 MiB and three if memory is scarce. Two
    hashes at a time use 64 MiB. Signing in updates a hash that has other parameters.
    """

    time_cost = 3
    memory_cost = 32 * 1024
    parallelism = 1

    def encode(self, password: str, salt: str) -> str:
        with _turns:
            return str(super().encode(password, salt))

    def verify(self, password: str, encoded: str) -> bool:
        with _turns:
            return bool(super().verify(password, encoded))


class UnknownBrowserQueue:
    """The short queue of requests from unknown browsers, served one at a time. Thread-safe."""

    def __init__(self, *, waiting_max: int, wait_s: float) -> None:
        self._places = threading.BoundedSemaphore(waiting_max + STRANGERS_AT_ONCE)
        self._turn = threading.BoundedSemaphore(STRANGERS_AT_ONCE)
        self._wait_s = wait_s

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the slot, then hold it.

        Raises:
            BusyError: the queue is full, or the wait took too long.
        """
        if not self._places.acquire(blocking=False):
            raise BusyError
        try:
            if not self._turn.acquire(timeout=self._wait_s):
                raise BusyError
            try:
                yield
            finally:
                self._turn.release()
        finally:
            self._places.release()


strangers_line = UnknownBrowserQueue(waiting_max=STRANGERS_WAITING_MAX, wait_s=STRANGER_WAITS_S)
