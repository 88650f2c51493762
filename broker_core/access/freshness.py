"""Freshness: whether a request of our own parts is new, and says what its account signed.

A request with a fresh signature (`protocol/fresh_signature.py`) passes once: its time must be near
the broker's clock, and its nonce must not have come before. A nonce is kept until its time is too
old, so that nothing passes twice; an account that has too many is refused, and none is forgotten
early. Every process keeps its own nonces: one that starts refuses what was signed before.
"""

from __future__ import annotations

import hmac
import logging
from typing import TYPE_CHECKING

from broker_core.config.limits import LIMITS
from broker_core.protocol.fresh_signature import (
    FRESH_NONCE,
    FRESH_SIGNATURE,
    FRESH_TIME,
    NONCE_BYTES,
    fresh_content,
    fresh_signature_of,
)

if TYPE_CHECKING:
    from broker_core.access.account import Account
    from broker_core.clock import Clock
    from broker_core.config.limits import LimitsConfig
    from broker_core.protocol.command import RemotingCommand

logger = logging.getLogger(__name__)

WINDOW_MS = 60_000
"""How far a request's time may be from the broker's clock, either way."""
NONCE_CHARS_MIN = 2 * NONCE_BYTES
NONCE_CHARS_MAX = 64
TIME_CHARS_MAX = 15
PURGE_EVERY_MS = 10_000


class NotFreshError(ValueError):
    """A request that is repeated, too old, or not what its account signed. The text says which."""


class Freshness:
    """Checks fresh signatures and remembers nonces. Event loop only."""

    def __init__(self, clock: Clock, limits: LimitsConfig = LIMITS) -> None:
        self._clock = clock
        self._limits = limits
        self._nonces: dict[str, dict[str, int]] = {}
        # What was signed before this may have passed already.
        self._not_before_ms = clock.now_ms()
        self._purged_at_ms = self._not_before_ms

    def __len__(self) -> int:
        """Return how many nonces are kept."""
        return sum(map(len, self._nonces.values()))

    def check(self, request: RemotingCommand, account: Account) -> None:
        """Let a request with a fresh signature pass once.

        Raises:
            NotFreshError: it may not pass, a sentence.
        """
        fields = request.ext_fields
        given = fields[FRESH_SIGNATURE].encode("utf-8", "replace")
        expected = fresh_signature_of(fresh_content(request), account.secret_key).encode()
        if not hmac.compare_digest(expected, given):
            raise NotFreshError("the request is not the one that was signed")
        time_ms = self._time_of(fields.get(FRESH_TIME, ""))
        nonce = fields.get(FRESH_NONCE, "")
        if not NONCE_CHARS_MIN <= len(nonce) <= NONCE_CHARS_MAX:
            raise NotFreshError(
                f"{FRESH_NONCE} must have {NONCE_CHARS_MIN} to {NONCE_CHARS_MAX} characters"
            )
        self._purge()
        kept = self._nonces.setdefault(account.access_key, {})
        if nonce in kept:
            raise NotFreshError("the request has come before")
        most = self._limits.account_nonce_nums_max
        if len(kept) >= most:
            raise NotFreshError(
                f"the account has signed {len(kept)} requests within {2 * WINDOW_MS // 1000} s and "
                f"no more are told apart than accountNonceNumsMax={most}"
            )
        kept[nonce] = time_ms

    def _time_of(self, text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= TIME_CHARS_MAX):
            raise NotFreshError(f"{FRESH_TIME} is no time in milliseconds")
        time_ms, now_ms = int(text), self._clock.now_ms()
        if abs(time_ms - now_ms) > WINDOW_MS:
            raise NotFreshError(
                f"the request's time is {abs(time_ms - now_ms) / 1000:.0f} s "
                f"{'before' if time_ms < now_ms else 'after'} the broker's clock, and may be "
                f"{WINDOW_MS // 1000} s; set the clocks of both machines right"
            )
        if time_ms < self._not_before_ms:
            raise NotFreshError(
                "the request was signed before the broker started, or its clock went back; sign "
                "it again"
            )
        return time_ms

    def _purge(self) -> None:
        """Forget the nonces whose time is too old for them to come again."""
        now_ms = self._clock.now_ms()
        if now_ms - self._purged_at_ms < PURGE_EVERY_MS:
            return
        self._purged_at_ms = now_ms
        # A clock that goes back afterwards must not let them in again.
        oldest = self._not_before_ms = max(self._not_before_ms, now_ms - WINDOW_MS)
        for access_key, kept in list(self._nonces.items()):
            left = {nonce: time_ms for nonce, time_ms in kept.items() if time_ms >= oldest}
            if left:
                self._nonces[access_key] = left
            else:
                del self._nonces[access_key]
