"""The account by which brokers know the console."""

from __future__ import annotations

from django.conf import settings

from broker_core.protocol.signature import Credentials


def broker_credentials() -> Credentials | None:
    """Return what the console's requests are signed with, None where no account is set."""
    access_key, secret_key = (
        settings.TREBUCHET_BROKER_ACCESS_KEY,
        settings.TREBUCHET_BROKER_SECRET_KEY,
    )
    return Credentials(access_key, secret_key) if access_key and secret_key else None
