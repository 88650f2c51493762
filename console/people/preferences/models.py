"""Stored preferences: settings, favourites and saved views."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _, pgettext_lazy

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser, User

ZONE_CHARACTERS_MAX = 64
LANGUAGE_CHARACTERS_MAX = 16
PLACES_MAX = 100
"""Maximum number of favourites and saved views per person."""
LABEL_CHARACTERS_MAX = 120
ADDRESS_CHARACTERS_MAX = 1_000


class Preferences(models.Model):
    """The settings of one person; without a row, all values are the defaults."""

    class Theme(models.TextChoices):
        """Colours; AUTO follows the system."""

        AUTO = "auto", pgettext_lazy("theme", "System")
        LIGHT = "light", _("Light")
        DARK = "dark", _("Dark")

    class Density(models.TextChoices):
        """Height of table rows."""

        ROOMY = "roomy", _("Comfortable: 40 px rows")
        NORMAL = "normal", _("Normal: 32 px rows")
        DENSE = "dense", _("Compact: 26 px rows")

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="preferences"
    )
    theme = models.CharField(max_length=8, choices=Theme.choices, default=Theme.AUTO)
    density = models.CharField(max_length=8, choices=Density.choices, default=Density.NORMAL)
    # Empty: use the browser's.
    zone = models.CharField(max_length=ZONE_CHARACTERS_MAX, blank=True, default="")
    language = models.CharField(max_length=LANGUAGE_CHARACTERS_MAX, blank=True, default="")

    class Meta:
        verbose_name_plural = "preferences"

    def __str__(self) -> str:
        return f"preferences of {self.user_id}"


class Place(models.Model):
    """A bookmarked page: a favourite, or a view with its filters."""

    class Kind(models.TextChoices):
        """A FAVOURITE is any page; a VIEW is a list with its filters, columns and order."""

        FAVOURITE = "favourite", _("Favourite")
        VIEW = "view", _("Saved view")

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="places"
    )
    kind = models.CharField(max_length=10, choices=Kind.choices)
    label = models.CharField(max_length=LABEL_CHARACTERS_MAX)
    # Path and query within this console.
    address = models.CharField(max_length=ADDRESS_CHARACTERS_MAX)

    class Meta:
        ordering = ["label", "id"]
        constraints = [
            models.UniqueConstraint(fields=["user", "address"], name="one_place_an_address")
        ]

    def __str__(self) -> str:
        return f"{self.label}: {self.address}"


def preferences_of(user: User | AnonymousUser) -> Preferences:
    """Return a person's settings, or the defaults."""
    if user.pk is None:
        return Preferences()
    found = Preferences.objects.filter(user_id=user.pk).first()
    return found or Preferences(user_id=user.pk)
