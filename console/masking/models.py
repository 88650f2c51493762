"""Rules of masking."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _

NAME_CHARACTERS_MAX = 60
WHAT_CHARACTERS_MAX = 500
RULES_MAX = 100


class MaskingRule(models.Model):
    """What is hidden in the messages of some topics, from everybody who has not asked for it."""

    class Kind(models.TextChoices):
        """How a rule finds what it hides."""

        PATTERN = "pattern", _("Text that a pattern matches, in bodies and properties")
        PATH = "path", _("Values at a JSON path of the body")
        PROPERTY = "property", _("The property of this name")

    name = models.CharField(
        max_length=NAME_CHARACTERS_MAX,
        unique=True,
        error_messages={"unique": _("There is a rule of this name.")},
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
        """What the audit keeps of it."""
        return {"topics": self.topics, "kind": self.kind, "what": self.what}
