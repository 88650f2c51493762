"""Sessions of people: recorded when used, listed and ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.db import transaction
from django.utils import timezone
from django.utils.translation import ngettext

from console.accounts.browsers import in_words
from console.accounts.models import AGENT_CHARACTERS_MAX, SignedIn

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from django.contrib.auth.models import User
    from django.http import HttpRequest, HttpResponse

NOTED_EVERY_S = 60
"""Limits writes to the database to one per session and interval."""


class RecordSessions:
    """Middleware: records when, from where and by which browser a session is used."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self._get_response(request)
        key = request.session.session_key
        user = request.user
        # A request with a token acts for the token's owner, even if it also has a session cookie.
        is_own = bool(key) and request.session.get(SESSION_KEY) == str(user.pk)
        if not key or not user.is_authenticated or not is_own:
            return response
        if cache.add(f"seen.{key}", 1, NOTED_EVERY_S):
            note(request, user, key)
        return response


def note(request: HttpRequest, account: User, key: str) -> None:
    now = timezone.now()
    SignedIn.objects.update_or_create(
        session_key=key,
        defaults={
            "user": account,
            "seen_at": now,
            "address": str(request.META.get("REMOTE_ADDR", "")),
            "agent": request.headers.get("User-Agent", "")[:AGENT_CHARACTERS_MAX],
        },
        create_defaults={
            "user": account,
            "since": now,
            "seen_at": now,
            "address": str(request.META.get("REMOTE_ADDR", "")),
            "agent": request.headers.get("User-Agent", "")[:AGENT_CHARACTERS_MAX],
        },
    )


@dataclass(frozen=True, slots=True)
class ShownSession:
    """A session as pages show it, without its secret key."""

    pk: int
    since_ms: int
    seen_ms: int
    ends_ms: int
    address: str
    browser: str
    agent: str
    is_here: bool


def sessions_of(account: User, here: str | None) -> list[ShownSession]:
    """Return active sessions, last used first; `here` is the key of the current session."""
    rows = {each.session_key: each for each in SignedIn.objects.filter(user=account)}
    live = Session.objects.filter(session_key__in=rows, expire_date__gt=timezone.now())
    ends = dict(live.values_list("session_key", "expire_date"))
    shown = [
        ShownSession(
            row.pk,
            int(row.since.timestamp() * 1_000),
            int(row.seen_at.timestamp() * 1_000),
            int(ends[key].timestamp() * 1_000),
            row.address,
            in_words(row.agent),
            row.agent,
            key == here,
        )
        for key, row in rows.items()
        if key in ends
    ]
    return sorted(shown, key=lambda each: (not each.is_here, -each.seen_ms))


def end(keys: Collection[str]) -> int:
    """End sessions by their keys; return how many were still active."""
    with transaction.atomic():
        live = Session.objects.filter(session_key__in=keys)
        count = live.filter(expire_date__gt=timezone.now()).count()
        live.delete()
        SignedIn.objects.filter(session_key__in=keys).delete()
    return count


def end_others(account: User, here: str | None) -> int:
    """End all sessions of an account but one, or all of them if `here` is None.

    Reads Django's sessions too, because a session without requests isn't recorded here yet.
    """
    noted = set(SignedIn.objects.filter(user=account).values_list("session_key", flat=True))
    live = Session.objects.filter(expire_date__gt=timezone.now())
    own = {each.session_key for each in live if owner_of(each) == str(account.pk)}
    return end((noted | own) - {here})


def owner_of(session: Session) -> str:
    return str(session.get_decoded().get(SESSION_KEY, ""))


def ended_sentence(count: int) -> str:
    return ngettext("%(count)d session ended.", "%(count)d sessions ended.", count) % {
        "count": count
    }


def renamed(before: str | None, after: str | None) -> None:
    """Record that a session's key changed."""
    if before and after and before != after:
        SignedIn.objects.filter(session_key=after).delete()
        SignedIn.objects.filter(session_key=before).update(session_key=after)


def forget_ended() -> None:
    """Delete records of sessions that no longer exist."""
    SignedIn.objects.exclude(session_key__in=Session.objects.values("session_key")).delete()
