"""Two-step sign-in with a code from an app, or a recovery code.

The app uses django-otp's `TOTPDevice` for its key, clock drift and single use of codes. The
library stores recovery codes as plain text, so this module stores digests instead. `throttle`
counts attempts before a code is checked, because the library's own throttling would delay people
after a single typing error.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import segno
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import transaction
from django.utils.crypto import constant_time_compare, salted_hmac
from django_otp import verify_token
from django_otp.plugins.otp_totp.models import TOTPDevice
from django_otp.util import random_hex

from console.accounts.devices import password_mark
from console.accounts.models import RecoveryCode
from console.lib.moment import now_ms

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser, User
    from django.http import HttpRequest

OPTIONAL, EVERYONE = "optional", "everyone"
PENDING_MS = 300_000
"""How long a sign-in waits for the code after the password was accepted."""
RECOVERY_CODES = 10
RECOVERY_BYTES = 10
"""Too many to guess, even with a copy of the database."""
PENDING, OFFERED_KEY = "second_step", "second_step_key"


class Kind(StrEnum):
    """The kind of code that a person entered."""

    APP = "app"
    RECOVERY = "recovery code"


class Pending(NamedTuple):
    """A person whose password was accepted, and the page to open next."""

    account: User
    next_url: str


def device_of(account: User | AnonymousUser) -> TOTPDevice | None:
    """Return the app that an account signs in with, or None if the password is enough."""
    found: TOTPDevice | None = TOTPDevice.objects.filter(user_id=account.pk, confirmed=True).first()
    return found


def is_required(account: User | AnonymousUser) -> bool:
    """Return whether the settings require a second step for an account."""
    mode = settings.TREBUCHET_SECOND_STEP
    if mode == OPTIONAL or not account.is_authenticated:
        return False
    # Accounts without a local password sign in at a provider, which is responsible for it.
    if not account.has_usable_password():
        return False
    return mode == EVERYONE or account.is_staff


def must_set_up(account: User | AnonymousUser) -> bool:
    """Return whether an account must set up a second step before it can open pages."""
    return is_required(account) and device_of(account) is None


def wait_for_code(request: HttpRequest, account: User, next_url: str) -> None:
    """Record that the password was accepted; the person isn't signed in yet."""
    request.session[PENDING] = {
        "account": account.pk,
        "mark": password_mark(account),
        "until_ms": now_ms() + PENDING_MS,
        "next": next_url,
    }


def pending_sign_in(request: HttpRequest) -> Pending | None:
    """Return the person who entered a password but no code yet, or None after a timeout."""
    kept = request.session.get(PENDING)
    if not kept or kept["until_ms"] < now_ms():
        return None
    account = get_user_model().objects.filter(pk=kept["account"], is_active=True).first()
    if account is None or not constant_time_compare(kept["mark"], password_mark(account)):
        return None
    return Pending(account, str(kept["next"]))


def kind_of(account: User, code: str) -> Kind | None:
    """Return the kind of a valid code, or None; each code is valid once."""
    device = device_of(account)
    if device is None:
        return None
    text = "".join(code.split()).replace("-", "").lower()
    if text.isascii() and text.isdecimal() and len(text) == device.digits:
        return Kind.APP if verify_token(account, device.persistent_id, text) else None
    known = RecoveryCode.objects.filter(user=account, digest__in=digests_of(account, text))
    used, _by_model = known.delete()
    return Kind.RECOVERY if used else None


def offered_key(request: HttpRequest) -> str:
    """Return the key being set up; it isn't used until a code confirms it."""
    key = request.session.get(OFFERED_KEY)
    if not isinstance(key, str):
        key = request.session[OFFERED_KEY] = random_hex(20)
    return key


class Offer(NamedTuple):
    """A key as a QR code, and as text to type."""

    picture: str
    text: str


def offer_of(account: User, key: str) -> Offer:
    device = TOTPDevice(user=account, key=key)
    picture = segno.make(device.config_url, error="m").svg_data_uri(
        scale=5, border=2, dark="#000", light="#fff"
    )
    text = base64.b32encode(bytes.fromhex(key)).decode()
    return Offer(picture, " ".join(text[at : at + 4] for at in range(0, len(text), 4)))


def set_up(account: User, key: str, code: str) -> list[str] | None:
    """Require codes of this key from now on; return recovery codes, or None for a wrong code."""
    with transaction.atomic():
        TOTPDevice.objects.filter(user=account).delete()
        device = TOTPDevice.objects.create(user=account, key=key, name="app")
        if not device.verify_token("".join(code.split())):
            transaction.set_rollback(True)
            return None
        return new_recovery_codes(account)


def new_recovery_codes(account: User) -> list[str]:
    """Replace the recovery codes; the new ones are shown only once."""
    codes = [secrets.token_hex(RECOVERY_BYTES) for _ in range(RECOVERY_CODES)]
    with transaction.atomic():
        RecoveryCode.objects.filter(user=account).delete()
        RecoveryCode.objects.bulk_create(
            RecoveryCode(user=account, digest=digest_of(account, each)) for each in codes
        )
    return ["-".join(each[at : at + 4] for at in range(0, len(each), 4)) for each in codes]


def codes_left(account: User) -> int:
    return RecoveryCode.objects.filter(user=account).count()


def turn_off(account: User) -> None:
    """Let an account sign in with its password alone."""
    with transaction.atomic():
        TOTPDevice.objects.filter(user=account).delete()
        RecoveryCode.objects.filter(user=account).delete()


def digest_of(account: User, code: str) -> str:
    """Return the stored digest of a recovery code, which doesn't depend on the secret key."""
    return hashlib.sha256(f"recovery code\0{account.pk}\0{code}".encode()).hexdigest()


def digests_of(account: User, code: str) -> list[str]:
    """Return the digests under which a code may be stored.

    Codes created before 2026-12 were stored with a digest that depends on the secret key of that
    time.
    """
    keys = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    keyed = (salted_hmac("accounts.recovery_code", code, each, algorithm="sha256") for each in keys)
    return [digest_of(account, code), *(each.hexdigest() for each in keyed)]
