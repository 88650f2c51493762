"""Tokens of the API: made once, found by their digest, used until they expire."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Any

from channels.db import database_sync_to_async

from console.api.models import ApiToken
from console.gateway.moment import now_ms as now
from console.history.tiers import DAY_MS, MINUTE_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.contrib.auth.models import User

PREFIX = "tba_"
"""Says to scanners for secrets what they have found."""
BEGINNING_CHARACTERS = 8
TOKENS_MAX = 20
"""Of one person."""
DAYS = (7, 30, 90, 365)
NOTED_EVERY_MS = MINUTE_MS
"""A token that is in use costs one write in this time."""


def made_token(
    owner: User, name: str, scopes: Sequence[str], days: int, now_ms: int
) -> tuple[ApiToken, str]:
    """Make a token; the text in the answer is the only place where it stands."""
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
    """Return the token that an Authorization header names, expired or not; None: none of ours."""
    scheme, _blank, text = header.partition(" ")
    if scheme.lower() != "bearer" or not text.strip().startswith(PREFIX):
        return None
    found = ApiToken.objects.select_related("owner").filter(digest=digest_of(text.strip()))
    return found.first()


def is_usable(token: ApiToken, now_ms: int) -> bool:
    """Whether a token opens anything: not when it has expired or its owner is switched off."""
    return now_ms < token.expires_ms and token.owner.is_active


async def is_token_usable(scope: dict[str, Any]) -> bool:
    """Return whether the Authorization header of an ASGI scope names a token that is usable now."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            return bool(await database_sync_to_async(opens)(value.decode("latin-1")))
    return False


def opens(header: str) -> bool:
    """Return whether an Authorization header names a token that is usable now."""
    token = token_of(header)
    return token is not None and is_usable(token, now())


def note_use(token: ApiToken, address: str, now_ms: int) -> None:
    """Remember when and from where a token was last used, to the minute."""
    if token.used_ms is not None and 0 <= now_ms - token.used_ms < NOTED_EVERY_MS:
        return
    ApiToken.objects.filter(pk=token.pk).update(used_ms=now_ms, used_from=address[:64])
