"""The audit entry: actor, address and action of an attempt, with the state before and after.

Each save of an entry is a link of the chain (console/audit/chain.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.db import IntegrityError, models, transaction
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from console.audit.chain import FIRST, digest_of, hash_of

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Any


LINKING_TRIES = 10
"""Another process may have written the next link meanwhile."""


class Entry(models.Model):
    """One attempt to change something or to sign in, written before the broker is asked.

    One entry counts all refused attempts of one kind from one network within an hour.
    """

    class Outcome(models.TextChoices):
        """The end of an attempt; STARTED remains if the console died meanwhile."""

        STARTED = "started", _("Unknown: the console stopped meanwhile")
        DONE = "done", _("Done")
        FAILED = "failed", _("Failed")
        REFUSED = "refused", _("Refused")

    at: models.DateTimeField[datetime, datetime] = models.DateTimeField(
        auto_now_add=True, db_index=True
    )
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    # A copy: the account may be renamed or deleted later. Empty for somebody not signed in.
    actor_name = models.CharField(max_length=150, blank=True)
    address = models.CharField(max_length=64, blank=True)
    action = models.CharField(max_length=40, db_index=True)
    subject = models.CharField(max_length=600, db_index=True)
    before: models.JSONField[Any, Any] = models.JSONField(null=True)
    after: models.JSONField[Any, Any] = models.JSONField(null=True)
    outcome = models.CharField(max_length=10, choices=Outcome.choices, default=Outcome.STARTED)
    remark = models.TextField(blank=True)
    # The token that a program came with, and the request's id, which its answer names.
    token = models.CharField(max_length=80, blank=True)
    request_id = models.CharField(max_length=32, blank=True)
    times = models.PositiveIntegerField(default=1)
    last_at = models.DateTimeField(null=True)
    # The common properties of the refused attempts that one entry counts.
    refusal_key = models.CharField(max_length=64, unique=True, null=True)

    class Meta:
        ordering = ["-at", "-id"]
        verbose_name_plural = "entries"

    def __str__(self) -> str:
        return f"{self.actor_name} {self.action} {self.subject}: {self.outcome}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save the entry together with its link."""
        with transaction.atomic():
            super().save(*args, **kwargs)
            Link.append(self)


class Link(models.Model):
    """One link of the chain; `entry` is the key of an entry that may be pruned by now."""

    number = models.PositiveBigIntegerField(primary_key=True)
    entry = models.BigIntegerField(db_index=True)
    at: models.DateTimeField[datetime, datetime] = models.DateTimeField()
    is_refusal = models.BooleanField()
    digest = models.CharField(max_length=64)
    previous = models.CharField(max_length=64, unique=True)
    hash = models.CharField(max_length=64)

    class Meta:
        ordering = ["number"]

    def __str__(self) -> str:
        return f"{self.number}: {self.hash}"

    @classmethod
    def append(cls, entry: Entry) -> None:
        """Chain what an entry says now behind the last link."""
        for tries_left in reversed(range(LINKING_TRIES)):
            last = cls.objects.order_by("-number").first()
            link = cls.following(last, entry, timezone.now())
            try:
                with transaction.atomic():
                    link.save(force_insert=True)
            except IntegrityError:
                if not tries_left:
                    raise
            else:
                return

    @classmethod
    def following(cls, last: Link | None, entry: Any, at: datetime) -> Link:
        """Return the link of an entry behind another one."""
        link = cls(
            number=1 if last is None else last.number + 1,
            entry=entry.pk,
            at=at,
            is_refusal=entry.refusal_key is not None,
            digest=digest_of(entry),
            previous=FIRST if last is None else last.hash,
        )
        link.hash = link.expected_hash()
        return link

    def expected_hash(self) -> str:
        return hash_of(
            self.previous,
            self.number,
            self.entry,
            self.at,
            self.digest,
            is_refusal=self.is_refusal,
        )
