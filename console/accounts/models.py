"""Custom roles, invitations, recovery codes, identities, sessions and failed sign-ins."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from console.accounts.actions import Action
from console.accounts.roles import Role

if TYPE_CHECKING:
    from datetime import datetime

NAME_CHARACTERS_MAX = 150
INVITATION_LIFETIME = timedelta(days=3)
INVITATIONS_MAX = 100
AGENT_CHARACTERS_MAX = 300
ROLE_CHARACTERS_MAX = 60
DESCRIPTION_CHARACTERS_MAX = 200
ROLES_MAX = 100
SUBJECT_CHARACTERS_MAX = 255


class FailedSignIn(models.Model):
    """A counter of failed sign-ins; `throttle` creates its keys."""

    key = models.CharField(max_length=200, unique=True)
    failures = models.PositiveIntegerField(default=0)
    last_failure_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"{self.key}: {self.failures}"


class CustomRole(models.Model):
    """A custom role: actions, and patterns of the topics and groups they apply to."""

    name = models.CharField(
        max_length=ROLE_CHARACTERS_MAX,
        unique=True,
        error_messages={"unique": _("A role with this name already exists.")},
    )
    description = models.CharField(max_length=DESCRIPTION_CHARACTERS_MAX, blank=True)
    actions: models.JSONField[list[str], list[str]] = models.JSONField(default=list)
    topics: models.JSONField[list[str], list[str]] = models.JSONField(default=list)
    groups: models.JSONField[list[str], list[str]] = models.JSONField(default=list)
    members = models.ManyToManyField(
        settings.AUTH_USER_MODEL, blank=True, related_name="custom_roles"
    )

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def allowed(self) -> list[Action]:
        """Return the allowed actions in order, without actions that only earlier releases had."""
        return [each for each in Action if each.value in self.actions]

    @property
    def as_kept(self) -> dict[str, Any]:
        """Return the values that the audit log stores."""
        return {
            "description": self.description,
            "actions": [each.value for each in self.allowed],
            "topics": self.topics,
            "groups": self.groups,
        }


class Invitation(models.Model):
    """A link that creates one account, once. Only a digest of its text is stored."""

    name = models.CharField(
        max_length=NAME_CHARACTERS_MAX,
        unique=True,
        error_messages={"unique": _("This name has already been invited.")},
    )
    role = models.CharField(max_length=20, choices=Role.choices)
    mail = models.EmailField(blank=True)
    digest = models.CharField(max_length=64, unique=True)
    custom_roles = models.ManyToManyField(CustomRole, blank=True, related_name="invitations")
    by = models.CharField(max_length=NAME_CHARACTERS_MAX)
    made_at: models.DateTimeField[datetime, datetime] = models.DateTimeField(auto_now_add=True)
    expires_at: models.DateTimeField[datetime, datetime] = models.DateTimeField()

    class Meta:
        ordering = ["name"]
        permissions = [
            ("operate", "May change topics, groups, offsets, marks and schedules"),
            ("limited", "May see names and figures, and what custom roles add"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_expired(self) -> bool:
        return self.expires_at <= timezone.now()


class RecoveryCode(models.Model):
    """A code that signs in once if the app is lost. Only a digest is stored."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="recovery_codes"
    )
    digest = models.CharField(max_length=64, unique=True)

    def __str__(self) -> str:
        return str(self.user)


class Identity(models.Model):
    """Links an account to a subject of an identity provider."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="identity"
    )
    issuer = models.CharField(max_length=500)
    subject = models.CharField(max_length=SUBJECT_CHARACTERS_MAX)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["issuer", "subject"], name="one_account_a_subject")
        ]

    def __str__(self) -> str:
        return f"{self.subject} ({self.issuer})"


class SignedIn(models.Model):
    """A session as the person sees it; Django's session of the same key decides if it's valid."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="sessions"
    )
    session_key = models.CharField(max_length=40, unique=True)
    since: models.DateTimeField[datetime, datetime] = models.DateTimeField()
    seen_at: models.DateTimeField[datetime, datetime] = models.DateTimeField()
    address = models.CharField(max_length=64, blank=True)
    agent = models.CharField(max_length=AGENT_CHARACTERS_MAX, blank=True)

    def __str__(self) -> str:
        return f"{self.user} {self.address}"
