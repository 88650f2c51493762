"""The console's account on the brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings

from broker_core.protocol.fresh_signature import FreshSigner
from broker_core.protocol.signature import Credentials
from console.lib.moment import now_ms

if TYPE_CHECKING:
    from broker_core.protocol.signature import RequestSigner


def broker_credentials() -> Credentials | None:
    """Return the console's account, or None without an account in the settings."""
    access_key, secret_key = (
        settings.TREBUCHET_BROKER_ACCESS_KEY,
        settings.TREBUCHET_BROKER_SECRET_KEY,
    )
    if not (access_key and secret_key):
        return None
    return Credentials(access_key, secret_key)


def broker_signer() -> RequestSigner | None:
    """Return the signer for the console's requests, or None without an account in the settings."""
    credentials = broker_credentials()
    return None if credentials is None else FreshSigner(credentials, now_ms)
