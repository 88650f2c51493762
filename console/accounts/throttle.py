"""Limits on password attempts: each attempt is counted before its password is checked.

An attempt from an unknown browser adds to four counters: of the account from this network, of the
network, of the provider's customer (IPv6), and of the account from everywhere. If any counter is
full, the attempt is refused. A browser in which the account has signed in before
(console/accounts/devices.py) has a single counter of its own instead, so that other people can't
lock its owner out. Refused attempts don't count: a lock ends WINDOW after the last attempt whose
password was checked. An attempt that can't be counted is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models import F
from django.utils import timezone
from django.utils.crypto import salted_hmac

from console.accounts.models import FailedSignIn
from console.lib.networks import network_of, site_of

WINDOW = timedelta(minutes=15)
ACCOUNT_AND_NETWORK_MAX = 5
NETWORK_MAX = 30
SITE_MAX = 120
ACCOUNT_MAX = 50
DEVICE_MAX = 10
PASSWORD_CHANGES_MAX = 5
SECOND_STEPS_MAX = 5
# Invented names and networks must not let the table grow without limit.
ROWS_MAX = 10_000


class RefusedError(Exception):
    """The attempt's password must not be checked."""


class LockedError(RefusedError):
    """A counter of the attempt is full."""


class UncountableError(RefusedError):
    """The table has no room to count the attempt."""


@dataclass(frozen=True, slots=True)
class Counter:
    """A row of the table with its limit; a successful sign-in clears counters with `is_own`."""

    key: str
    limit: int
    is_own: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """One password attempt; if the table is full, attempts with `of_stranger` are refused."""

    counters: tuple[Counter, ...]
    of_stranger: bool = False

    def count(self) -> None:
        """Count the attempt as failed, either in every counter or not at all.

        Raises:
            LockedError: a counter is full.
            UncountableError: there is no room for an unknown browser's counters.
        """
        limits = {each.key: each.limit for each in self.counters}
        now = timezone.now()
        # Check first, so that a flood of refused attempts writes nothing.
        for row in FailedSignIn.objects.filter(key__in=limits, last_failure_at__gt=now - WINDOW):
            if row.failures >= limits[row.key]:
                raise LockedError
        with transaction.atomic():
            FailedSignIn.objects.filter(last_failure_at__lte=now - WINDOW).delete()
            self._make_rows(limits)
            # Sorted, so that concurrent attempts can't deadlock on each other's rows.
            for key in sorted(limits):
                free = FailedSignIn.objects.filter(key=key, failures__lt=limits[key])
                if not free.update(failures=F("failures") + 1, last_failure_at=now):
                    raise LockedError

    def _make_rows(self, limits: dict[str, int]) -> None:
        there = FailedSignIn.objects.filter(key__in=limits).values_list("key", flat=True)
        missing = set(limits) - set(there)
        if not missing:
            return
        if self.of_stranger and FailedSignIn.objects.count() + len(missing) > ROWS_MAX:
            raise UncountableError
        now = timezone.now()
        FailedSignIn.objects.bulk_create(
            [FailedSignIn(key=key, failures=0, last_failure_at=now) for key in missing],
            # A concurrent attempt may create the same row.
            ignore_conflicts=True,
        )

    def uncount(self) -> None:
        """Remove the attempt from its counters, because its password was not checked after all."""
        keys = [each.key for each in self.counters]
        FailedSignIn.objects.filter(key__in=keys, failures__gt=0).update(failures=F("failures") - 1)

    def succeeded(self) -> None:
        """Clear this account's own counters; others may be guessing from the same network."""
        self.uncount()
        own = [each.key for each in self.counters if each.is_own]
        FailedSignIn.objects.filter(key__in=own).delete()


def stranger(username: str, address: str) -> Attempt:
    network, site = network_of(address), site_of(address)
    return Attempt(
        (
            Counter(key_of("here", username, network), ACCOUNT_AND_NETWORK_MAX, is_own=True),
            Counter(key_of("account", username), ACCOUNT_MAX),
            Counter(f"network:{network}", NETWORK_MAX),
            Counter(f"site:{site}", SITE_MAX),
        ),
        of_stranger=True,
    )


def known_device(device: str) -> Attempt:
    return Attempt((Counter(f"device:{device}", DEVICE_MAX, is_own=True),))


def password_change(account_id: int) -> Attempt:
    return Attempt((Counter(f"password:{account_id}", PASSWORD_CHANGES_MAX, is_own=True),))


def second_step(account_id: int) -> Attempt:
    return Attempt((Counter(f"second-step:{account_id}", SECOND_STEPS_MAX, is_own=True),))


def key_of(kind: str, username: str, network: str = "") -> str:
    """Return a key that doesn't reveal the name, because people type passwords into that field."""
    text = f"{username.casefold()}\0{network}"
    return f"{kind}:{salted_hmac('accounts.throttle', text, algorithm='sha256').hexdigest()}"
