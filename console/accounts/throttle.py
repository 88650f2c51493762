"""The lock-out after repeated failures to sign in.

An account is closed to one address after FAILURES_AN_ACCOUNT_MAX misses, and an address to every
account after FAILURES_AN_ADDRESS_MAX, until WINDOW has passed without another miss. Counting by
address keeps a stranger from locking an administrator out everywhere.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from console.accounts.models import FailedSignIn

WINDOW = timedelta(minutes=15)
FAILURES_AN_ACCOUNT_MAX = 5
FAILURES_AN_ADDRESS_MAX = 30
# An address that invents account names must not grow the table without end.
ROWS_MAX = 10_000


def keys(username: str, address: str) -> dict[str, int]:
    """Return an attempt's counters with their limits; names are hashed, they may be passwords."""
    account = hashlib.sha256(f"{username.casefold()}\0{address}".encode()).hexdigest()
    return {
        f"account:{account}": FAILURES_AN_ACCOUNT_MAX,
        f"address:{address}": FAILURES_AN_ADDRESS_MAX,
    }


def is_locked(username: str, address: str) -> bool:
    since = timezone.now() - WINDOW
    counted = FailedSignIn.objects.filter(last_failure_at__gt=since)
    limits = keys(username, address)
    return any(row.failures >= limits[row.key] for row in counted.filter(key__in=limits))


@transaction.atomic
def record_failure(username: str, address: str) -> None:
    now = timezone.now()
    FailedSignIn.objects.filter(last_failure_at__lte=now - WINDOW).delete()
    room = FailedSignIn.objects.count() < ROWS_MAX
    for key in keys(username, address):
        found = FailedSignIn.objects.filter(key=key)
        if not found.update(failures=F("failures") + 1, last_failure_at=now) and room:
            FailedSignIn.objects.create(key=key, failures=1, last_failure_at=now)


def forget(username: str, address: str) -> None:
    """Clear the account's counter; the address's stays: others may be guessing there."""
    account_key = next(iter(keys(username, address)))
    FailedSignIn.objects.filter(key=account_key).delete()
