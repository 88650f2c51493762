"""The rate limit of tokens: requests per minute, counted separately in each server process."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.core.cache import caches

from console.observe.history.tiers import MINUTE_MS

CACHE = "limits"
KEPT_S = 120


@dataclass(frozen=True, slots=True)
class Allowance:
    """A token's remaining requests in this minute; negative `left` means over the limit."""

    limit: int
    left: int
    resets_s: int

    @property
    def headers(self) -> dict[str, str]:
        found = {
            "RateLimit-Limit": str(self.limit),
            "RateLimit-Remaining": str(max(0, self.left)),
            "RateLimit-Reset": str(self.resets_s),
        }
        return found | ({"Retry-After": str(self.resets_s)} if self.left < 0 else {})


def count(token: int, now_ms: int) -> Allowance:
    """Count a request and return the token's remaining allowance for this minute."""
    limit = settings.TREBUCHET_API_REQUESTS_A_MINUTE
    minute, into_ms = divmod(now_ms, MINUTE_MS)
    key = f"api:{token}:{minute}"
    cache = caches[CACHE]
    cache.add(key, 0, KEPT_S)
    return Allowance(limit, limit - cache.incr(key), (MINUTE_MS - into_ms + 999) // 1_000)
