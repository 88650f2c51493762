"""API tokens: created once, found by their digest, valid until they expire."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Any

from channels.db import database_sync_to_async

from console.api.models import ApiToken
from console.lib.moment import now_ms as now
from console.observe.history.tiers import DAY_MS, MINUTE_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.contrib.auth.models import User

PREFIX = "tba_"
"""Lets secret scanners recognize a token."""
BEGINNING_CHARACTERS = 8
TOKENS_MAX = 20
"""Per person."""
DAYS = (7, 30, 90, 365)
NOTED_EVERY_MS = MINUTE_MS
"""Limits writes to the database to one per token and interval."""


def new_token(
    owner: User, name: str, scopes: Sequence[str], days: int, now_ms: int
) -> tuple[ApiToken, str]:
    """Create a token; the returned text isn't stored anywhere."""
    text = PREFIX + secrets.token_urlsafe(32)
    token = ApiToken.objects.create(
        owner=owner,
        name=name,
        digest=digest_of(text),
        beginning=text[:BEGINNING_CHARACTERS],
        scopes=list(scopes),
        made_ms=now_ms,
        expires_ms=now_ms + days * DAY_MS,
    )
    return token, text


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def token_of(header: str) -> ApiToken | None:
    """Return the token in an Authorization header, even if expired, or None if unknown."""
    scheme, _blank, text = header.partition(" ")
    if scheme.lower() != "bearer" or not text.strip().startswith(PREFIX):
        return None
    found = ApiToken.objects.select_related("owner").filter(digest=digest_of(text.strip()))
    return found.first()


def is_usable(token: ApiToken, now_ms: int) -> bool:
    """Return whether a token works: it hasn't expired and its owner is enabled."""
    return now_ms < token.expires_ms and token.owner.is_active


async def is_token_usable(scope: dict[str, Any]) -> bool:
    """Return whether an ASGI scope's Authorization header has a usable token."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            return bool(await database_sync_to_async(is_header_usable)(value.decode("latin-1")))
    return False


def is_header_usable(header: str) -> bool:
    """Return whether an Authorization header has a usable token."""
    token = token_of(header)
    return token is not None and is_usable(token, now())


def note_use(token: ApiToken, address: str, now_ms: int) -> None:
    """Store when and from where a token was last used, at most once a minute."""
    if token.used_ms is not None and 0 <= now_ms - token.used_ms < NOTED_EVERY_MS:
        return
    ApiToken.objects.filter(pk=token.pk).update(used_ms=now_ms, used_from=address[:64])
