"""Masking rules."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _

NAME_CHARACTERS_MAX = 60
WHAT_CHARACTERS_MAX = 500
RULES_MAX = 100


class MaskingRule(models.Model):
    """Hides parts of the messages of some topics, except on request."""

    class Kind(models.TextChoices):
        """How a rule finds the parts to hide."""

        PATTERN = "pattern", _("Text matching a pattern, in bodies and properties")
        PATH = "path", _("Values at a JSON path of the body")
        PROPERTY = "property", _("A property by name")

    name = models.CharField(
        max_length=NAME_CHARACTERS_MAX,
        unique=True,
        error_messages={"unique": _("A rule with this name already exists.")},
    )
    topics: models.JSONField[list[str], list[str]] = models.JSONField(default=list)
    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.PATTERN)
    what = models.CharField(max_length=WHAT_CHARACTERS_MAX)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def as_kept(self) -> dict[str, Any]:
        """The rule in the audit log's format."""
        return {"topics": self.topics, "kind": self.kind, "what": self.what}
