"""Setting marks: authorisation, hourly limit and validation."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING

from django.urls import reverse
from django.utils.translation import gettext as _

from console.lib.moment import now_ms
from console.observe.history.tiers import DAY_MS, HOUR_MS, MINUTE_MS
from console.observe.marks.models import MARKS_MAX, TEXT_CHARACTERS_MAX, Mark, Token
from console.people.audit.record import change
from console.ui.danger import Danger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.http import HttpRequest

PREFIX = "tbm_"
"""Lets secret scanners recognise a token."""
MARKS_AN_HOUR_MAX = 60
MARKS_SHOWN_MAX = 100
AHEAD_MS_MAX = 5 * MINUTE_MS
BEHIND_MS_MAX = 366 * DAY_MS


class MarkError(ValueError):
    """The mark can't be set; the text says why, for people."""


class TooManyError(MarkError):
    """The token has reached its hourly limit."""


def new_token(name: str, by: str, now_ms: int) -> str:
    """Create a token and return it; it can't be retrieved later."""
    token = PREFIX + secrets.token_urlsafe(32)
    Token.objects.create(name=name, digest=digest_of(token), by=by, made_ms=now_ms)
    return token


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def token_of(header: str) -> Token | None:
    """Return the token in an Authorization header, or None if it isn't valid."""
    scheme, _blank, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token.startswith(PREFIX):
        return None
    return Token.objects.filter(digest=digest_of(token.strip())).first()


def set_mark(
    text: object, at_ms: object, now_ms: int, *, by: str, token: Token | None = None
) -> Mark:
    """Set a mark, at `now_ms` if `at_ms` is None.

    Raises:
        TooManyError: the token has reached its hourly limit.
        MarkError: the text or time is invalid.
    """
    text, at_ms = checked_text(text), checked_time(at_ms, now_ms)
    if token is not None:
        recent = Mark.objects.filter(token=token, made_ms__gt=now_ms - HOUR_MS).count()
        if recent >= MARKS_AN_HOUR_MAX:
            raise TooManyError(
                _("A token can create at most %(count)d marks per hour.")
                % {"count": MARKS_AN_HOUR_MAX}
            )
        Token.objects.filter(pk=token.pk).update(used_ms=now_ms)
    mark = Mark.objects.create(at_ms=at_ms, text=text, by=by, made_ms=now_ms, token=token)
    beyond = Mark.objects.order_by("-made_ms", "-id").values_list("pk", flat=True)[MARKS_MAX:]
    Mark.objects.filter(pk__in=list(beyond)).delete()
    return mark


def checked_text(text: object) -> str:
    found = text.strip() if isinstance(text, str) else ""
    if not found or len(found) > TEXT_CHARACTERS_MAX or not found.isprintable():
        raise MarkError(
            _("Enter a text of one line, at most %(count)d characters.")
            % {"count": TEXT_CHARACTERS_MAX}
        )
    return found


def checked_time(at_ms: object, now_ms: int) -> int:
    if at_ms is None:
        return now_ms
    is_number = isinstance(at_ms, int) and not isinstance(at_ms, bool)
    if not is_number or not now_ms - BEHIND_MS_MAX <= int(str(at_ms)) <= now_ms + AHEAD_MS_MAX:
        raise MarkError(
            _(
                "at_ms must be a time in ms since 1970 UTC, within the last year and not in "
                "the future."
            )
        )
    return int(str(at_ms))


def deployment_marks(low_ms: int, high_ms: int) -> Iterator[tuple[int, str, str]]:
    """Yield (at, kind, text) of the marks in a time range."""
    for mark in Mark.objects.filter(at_ms__gte=low_ms, at_ms__lt=high_ms)[:MARKS_SHOWN_MAX]:
        yield mark.at_ms, "deploy", mark.text


def add_mark(request: HttpRequest, text: object, at_ms: object = None) -> Mark:
    """Set a mark, with an audit entry.

    Raises:
        MarkError: the text or time is invalid.
    """
    with change(request, "mark.add", "marks") as entry:
        mark = set_mark(text, at_ms, now_ms(), by=request.user.get_username())
        entry.after = {"id": mark.pk, "text": mark.text}
    return mark


def mark_danger_of(mark: Mark) -> Danger:
    """Return the effects of deleting a mark: its line on each chart."""
    return Danger(
        title=_("Delete this mark?"),
        text=mark.text,
        undo=_("This can't be undone. A new mark gets the current time."),
        action=_("Delete mark"),
        keep=_("Cancel"),
        address=reverse("marks:delete", args=[mark.pk]),
        back=reverse("marks:list"),
    )


def delete_mark(request: HttpRequest, mark: Mark) -> None:
    """Delete a mark, with an audit entry."""
    before = {"text": mark.text, "at_ms": mark.at_ms, "by": mark.by}
    with change(request, "mark.delete", "marks", before=before):
        mark.delete()
