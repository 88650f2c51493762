"""Functions that write audit log entries for changes and refused attempts."""

from __future__ import annotations

import getpass
import hashlib
import logging
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db.models import F
from django.utils import timezone
from django.utils.translation import gettext as _

from console.lib.networks import network_of
from console.people.audit.models import Entry
from console.people.audit.requests import request_id_of, token_name_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from typing import Any

    from django.contrib.auth.models import User
    from django.http import HttpRequest

logger = logging.getLogger(__name__)

REMARK_CHARACTERS_MAX = 2_000
SUBJECT_CHARACTERS_MAX = 600
REFUSALS_AN_HOUR_MAX = 200
"""Entries for refused attempts per hour; further attempts share one entry per kind."""
REFUSALS_KEPT = 10_000


@contextmanager
def change(
    request: HttpRequest, action: str, subject: str, *, before: Any = None, after: Any = None
) -> Iterator[Entry]:
    """Record the change that the block makes: write the entry before it, the outcome after it.

    A block that fails without raising sets an outcome other than DONE, and a remark. In `before`
    and
    `after`, 64-bit numbers are strings, as elsewhere in JSON.
    """
    user = request.user
    entry = Entry(
        actor=user if user.is_authenticated else None,
        actor_name=user.get_username(),
        address=address_of(request),
        action=action,
        subject=subject,
        before=before,
        after=after,
        token=token_name_of(request),
        request_id=request_id_of(request),
    )
    with attempted(entry):
        yield entry


@contextmanager
def change_by_command(
    action: str, subject: str, *, before: Any = None, after: Any = None
) -> Iterator[Entry]:
    """Record the change that a management command makes, as `change` does."""
    entry = Entry(
        actor_name=command_line(), action=action, subject=subject, before=before, after=after
    )
    with attempted(entry):
        yield entry


@contextmanager
def attempted(entry: Entry) -> Iterator[None]:
    entry.save()
    try:
        yield
    except Exception as error:
        entry.outcome = Entry.Outcome.FAILED
        entry.remark = str(error)[:REMARK_CHARACTERS_MAX]
        entry.save(update_fields=["outcome", "remark"])
        raise
    if entry.outcome == Entry.Outcome.STARTED:
        entry.outcome = Entry.Outcome.DONE
    entry.save(update_fields=["outcome", "after", "remark"])


def done(request: HttpRequest, action: str, subject: str, *, after: Any = None) -> None:
    """Record a change that is already complete and can't fail."""
    with change(request, action, subject, after=after):
        return


def done_by_command(action: str, subject: str, *, after: Any = None) -> None:
    """Record a change that a management command has made."""
    Entry.objects.create(
        actor_name=command_line(),
        action=action,
        subject=subject,
        after=after,
        outcome=Entry.Outcome.DONE,
    )


def command_line() -> str:
    return _("command line (%(user)s)") % {"user": getpass.getuser()}


def done_by_token(
    request: HttpRequest, action: str, subject: str, name: str, *, after: Any = None
) -> None:
    """Record a change that a program has made, with the name of its token."""
    Entry.objects.create(
        actor_name=_("token %(name)s") % {"name": name},
        address=address_of(request),
        action=action,
        subject=subject,
        after=after,
        token=name,
        request_id=request_id_of(request),
        outcome=Entry.Outcome.DONE,
    )


def refused(request: HttpRequest, action: str, subject: str, reason: str) -> None:
    """Count a refused attempt in the entry of its kind, network and hour.

    The number of entries is limited, regardless of the number of attempts and networks.
    """
    now = timezone.now()
    user = request.user
    refusal = Refusal(
        action=action,
        subject=subject[:SUBJECT_CHARACTERS_MAX],
        remark=reason,
        actor=user if user.is_authenticated else None,
        actor_name=user.get_username(),
        address=address_of(request),
    )
    if refusal.count_again(now):
        return
    hour = now.replace(minute=0, second=0, microsecond=0)
    if Entry.objects.filter(refusal_key__isnull=False, at__gte=hour).count() >= (
        REFUSALS_AN_HOUR_MAX
    ):
        refusal = Refusal(action, remark=_("Too many different values to list."))
        if refusal.count_again(now):
            return
    refusal.write(now)
    forget_old_refusals()


@dataclass(frozen=True, slots=True)
class Refusal:
    """The common properties of the refused attempts that one entry counts."""

    action: str
    subject: str = ""
    remark: str = ""
    actor: User | None = None
    actor_name: str = ""
    address: str = ""

    def key(self, now: datetime) -> str:
        hour, network = now.strftime("%Y-%m-%dT%H"), network_of(self.address)
        parts = (hour, self.action, self.subject, self.remark, self.actor_name, network)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def count_again(self, now: datetime) -> bool:
        """Count another attempt in this hour's entry; return False if there is no such entry."""
        found = Entry.objects.filter(refusal_key=self.key(now))
        if not found.update(times=F("times") + 1, last_at=now):
            return False
        if self.address:
            # A second address of the same network replaces the entry's address with the network.
            found.exclude(address=self.address).update(address=network_of(self.address))
        return True

    def write(self, now: datetime) -> None:
        """Write this hour's entry, unless a concurrent attempt has written it."""
        _entry, is_new = Entry.objects.get_or_create(
            refusal_key=self.key(now),
            defaults={
                "action": self.action,
                "subject": self.subject,
                "remark": self.remark,
                "actor": self.actor,
                "actor_name": self.actor_name,
                "address": self.address,
                "outcome": Entry.Outcome.REFUSED,
                "last_at": now,
            },
        )
        if not is_new:
            self.count_again(now)
            return
        logger.warning(
            "action refused action=%s subject=%r actor=%r address=%s reason=%r",
            self.action,
            self.subject,
            self.actor_name,
            self.address,
            self.remark,
        )


def forget_old_refusals() -> None:
    newest = Entry.objects.filter(refusal_key__isnull=False).order_by("-pk")
    for oldest_kept in newest.values_list("pk", flat=True)[REFUSALS_KEPT - 1 : REFUSALS_KEPT]:
        Entry.objects.filter(refusal_key__isnull=False, pk__lt=oldest_kept).delete()


def address_of(request: HttpRequest) -> str:
    return str(request.META.get("REMOTE_ADDR", ""))
