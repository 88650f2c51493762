"""Who may ask for the console's metrics: nobody, this machine, or who has the token."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from django.core.exceptions import ImproperlyConfigured
from django.utils.crypto import constant_time_compare

if TYPE_CHECKING:
    from collections.abc import Mapping

OFF, LOOPBACK, TOKEN = "off", "loopback", "token"
MODES = (OFF, LOOPBACK, TOKEN)
TOKEN_CHARACTERS_MIN = 20
FORWARDED = ("HTTP_FORWARDED", "HTTP_X_FORWARDED_FOR", "HTTP_X_REAL_IP")


def check(mode: str, token: str, *, is_behind_proxy: bool) -> None:
    """Refuse settings under which somebody could ask who is not meant.

    Raises:
        ImproperlyConfigured: it says what would be right.
    """
    if mode == LOOPBACK and is_behind_proxy:
        raise ImproperlyConfigured(
            "TREBUCHET_METRICS=loopback means this machine, and behind a proxy on it everybody "
            "comes from there; expected TREBUCHET_METRICS=token."
        )
    if mode == TOKEN and len(token) < TOKEN_CHARACTERS_MIN:
        raise ImproperlyConfigured(
            "TREBUCHET_METRICS=token needs TREBUCHET_METRICS_TOKEN (or its _FILE) with "
            f"{TOKEN_CHARACTERS_MIN} characters or more: openssl rand -hex 32 makes one."
        )


def is_of_this_machine(meta: Mapping[str, str]) -> bool:
    """Whether a request came from this machine, and through no proxy on it."""
    try:
        peer = ipaddress.ip_address(meta.get("REMOTE_ADDR", ""))
    except ValueError:
        return False
    # A listener on :: sees 127.0.0.1 as ::ffff:127.0.0.1.
    peer = getattr(peer, "ipv4_mapped", None) or peer
    return peer.is_loopback and not any(name in meta for name in FORWARDED)


def has_token(authorization: str, token: str) -> bool:
    """Whether a header `Authorization` is `Bearer` with this token."""
    scheme, _, given = authorization.partition(" ")
    return scheme.lower() == "bearer" and constant_time_compare(given.strip(), token)
