"""Links in messages: to pages of this console, and to silence an alert without signing in.

Anyone who has the message can silence its alerts for a while, and nothing else: the link is signed.
The page asks for confirmation, because mail scanners open links.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core import signing
from django.urls import reverse

SALT = "console.alerts.silence"
VALID_SECONDS = 7 * 24 * 3_600


def absolute(path: str) -> str:
    return f"{settings.TREBUCHET_URL}{path}"


def silence_token(alert_id: int) -> str:
    return signing.dumps(alert_id, salt=SALT)


def alert_of(token: str) -> int | None:
    """Return the alert of a link, or None if the signature is invalid or too old."""
    try:
        found: Any = signing.loads(token, salt=SALT, max_age=VALID_SECONDS)
    except signing.BadSignature:
        return None
    return found if isinstance(found, int) else None


def silence_link(content: dict[str, Any]) -> str:
    """Return the silence link for a message's thread, or "" unless it covers exactly one."""
    firing = [each for each in content.get("alerts", ()) if each["status"] == "firing"]
    if not content.get("thread") or not firing:
        return ""
    return absolute(reverse("alerts:silence-link", args=[silence_token(firing[0]["id"])]))
