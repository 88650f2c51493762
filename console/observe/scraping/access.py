"""Access to the console's metrics: nobody, this machine, or holders of the token."""

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
    """Refuse settings that would allow unintended access.

    Raises:
        ImproperlyConfigured: the text says what would be right.
    """
    if mode == LOOPBACK and is_behind_proxy:
        raise ImproperlyConfigured(
            "TREBUCHET_METRICS=loopback allows every client of a proxy on this machine; "
            "expected TREBUCHET_METRICS=token."
        )
    if mode == TOKEN and len(token) < TOKEN_CHARACTERS_MIN:
        raise ImproperlyConfigured(
            "TREBUCHET_METRICS=token needs TREBUCHET_METRICS_TOKEN (or its _FILE) with at least "
            f"{TOKEN_CHARACTERS_MIN} characters. To generate one, run openssl rand -hex 32."
        )


def is_of_this_machine(meta: Mapping[str, str]) -> bool:
    """Whether a request came from this machine, not through a proxy on it."""
    try:
        peer = ipaddress.ip_address(meta.get("REMOTE_ADDR", ""))
    except ValueError:
        return False
    # A listener on :: sees 127.0.0.1 as ::ffff:127.0.0.1.
    peer = getattr(peer, "ipv4_mapped", None) or peer
    return peer.is_loopback and not any(name in meta for name in FORWARDED)


def has_token(authorization: str, token: str) -> bool:
    """Whether an `Authorization` header is `Bearer` with this token."""
    scheme, _, given = authorization.partition(" ")
    return scheme.lower() == "bearer" and constant_time_compare(given.strip(), token)
