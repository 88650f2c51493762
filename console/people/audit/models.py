"""The audit log entry: actor, address and action of an attempt, with the state before and after.

Each save of an entry adds a link to the chain (console/people/audit/chain.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.db import IntegrityError, models, transaction
from django.utils import timezone
from django.utils.translation import gettext_lazy as _, pgettext_lazy

from console.people.audit.chain import FIRST, digest_of, hash_of

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Any


LINKING_TRIES = 10
"""Another process may have written the next link meanwhile."""


class Entry(models.Model):
    """One attempt to change something or to sign in, written before the change is made.

    One entry counts all refused attempts of one kind from one network within an hour.
    """

    class Outcome(models.TextChoices):
        """The result of an attempt; STARTED remains if the console died meanwhile."""

        STARTED = "started", _("Unknown: the console stopped during the action")
        DONE = "done", pgettext_lazy("state", "Done")
        FAILED = "failed", _("Failed")
        REFUSED = "refused", _("Rejected")

    at: models.DateTimeField[datetime, datetime] = models.DateTimeField(
        auto_now_add=True, db_index=True
    )
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    # A copy, because the account may be renamed or deleted later. Empty if nobody was signed in.
    actor_name = models.CharField(max_length=150, blank=True)
    address = models.CharField(max_length=64, blank=True)
    action = models.CharField(max_length=40, db_index=True)
    subject = models.CharField(max_length=600, db_index=True)
    before: models.JSONField[Any, Any] = models.JSONField(null=True)
    after: models.JSONField[Any, Any] = models.JSONField(null=True)
    outcome = models.CharField(max_length=10, choices=Outcome.choices, default=Outcome.STARTED)
    remark = models.TextField(blank=True)
    # The name of the program's token, and the request ID that the response contains.
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
    """A link of the chain; `entry` is the key of an entry that may have been pruned."""

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
        """Append a link with the entry's current contents to the chain."""
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
        """Return an entry's link that follows another link."""
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
