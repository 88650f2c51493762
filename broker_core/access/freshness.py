"""Freshness: whether a signed request between Trebuchet's own parts is new and unmodified.

A request with a fresh signature (`protocol/fresh_signature.py`) passes once: its time must be near
the broker's clock, and its nonce must be new. A nonce is kept until its time is too old, so that no
request passes twice; an account with too many nonces is refused, and no nonce is dropped
early. Nonces are kept per process: a new process refuses requests that were signed before its
start.
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
"""The maximum difference between a request's time and the broker's clock."""
NONCE_CHARS_MIN = 2 * NONCE_BYTES
NONCE_CHARS_MAX = 64
TIME_CHARS_MAX = 15
PURGE_EVERY_MS = 10_000


class NotFreshError(ValueError):
    """The request is repeated, too old, or modified after signing. The text says which."""


class Freshness:
    """Checks fresh signatures and remembers nonces. Event loop only."""

    def __init__(self, clock: Clock, limits: LimitsConfig = LIMITS) -> None:
        self._clock = clock
        self._limits = limits
        self._nonces: dict[str, dict[str, int]] = {}
        # Requests signed before this may have passed already.
        self._not_before_ms = clock.now_ms()
        self._purged_at_ms = self._not_before_ms

    def __len__(self) -> int:
        """Return how many nonces are kept."""
        return sum(map(len, self._nonces.values()))

    def check(self, request: RemotingCommand, account: Account) -> None:
        """Let a request with a fresh signature pass once.

        Raises:
            NotFreshError: the request is refused; the text is a sentence.
        """
        fields = request.ext_fields
        given = fields[FRESH_SIGNATURE].encode("utf-8", "replace")
        expected = fresh_signature_of(fresh_content(request), account.secret_key).encode()
        if not hmac.compare_digest(expected, given):
            raise NotFreshError("the signature doesn't match the request")
        time_ms = self._time_of(fields.get(FRESH_TIME, ""))
        nonce = fields.get(FRESH_NONCE, "")
        if not NONCE_CHARS_MIN <= len(nonce) <= NONCE_CHARS_MAX:
            raise NotFreshError(
                f"{FRESH_NONCE} must have {NONCE_CHARS_MIN} to {NONCE_CHARS_MAX} characters"
            )
        self._purge()
        kept = self._nonces.setdefault(account.access_key, {})
        if nonce in kept:
            raise NotFreshError("the request was received before; sign each attempt again")
        most = self._limits.account_nonce_nums_max
        if len(kept) >= most:
            raise NotFreshError(
                f"the account has signed {len(kept)} requests within {2 * WINDOW_MS // 1000} s; "
                f"the limit is accountNonceNumsMax={most}"
            )
        kept[nonce] = time_ms

    def _time_of(self, text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= TIME_CHARS_MAX):
            raise NotFreshError(f"{FRESH_TIME} is not a time in milliseconds")
        time_ms, now_ms = int(text), self._clock.now_ms()
        if abs(time_ms - now_ms) > WINDOW_MS:
            raise NotFreshError(
                f"the request's time is {abs(time_ms - now_ms) / 1000:.0f} s "
                f"{'before' if time_ms < now_ms else 'after'} the broker's clock, more than the "
                f"{WINDOW_MS // 1000} s allowed; synchronize the clocks of both machines"
            )
        if time_ms < self._not_before_ms:
            raise NotFreshError(
                "the request was signed before the broker started, or the broker's clock went "
                "back; sign it again"
            )
        return time_ms

    def _purge(self) -> None:
        """Forget the nonces of requests that are now too old to pass."""
        now_ms = self._clock.now_ms()
        if now_ms - self._purged_at_ms < PURGE_EVERY_MS:
            return
        self._purged_at_ms = now_ms
        # If the clock goes back afterwards, these requests must still be refused.
        oldest = self._not_before_ms = max(self._not_before_ms, now_ms - WINDOW_MS)
        for access_key, kept in list(self._nonces.items()):
            left = {nonce: time_ms for nonce, time_ms in kept.items() if time_ms >= oldest}
            if left:
                self._nonces[access_key] = left
            else:
                del self._nonces[access_key]
