"""What the console keeps of a person's taste: settings, favourites and saved views."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser, User

ZONE_CHARACTERS_MAX = 64
LANGUAGE_CHARACTERS_MAX = 16
PLACES_MAX = 100
"""Favourites and saved views of one person."""
LABEL_CHARACTERS_MAX = 120
ADDRESS_CHARACTERS_MAX = 1_000


class Preferences(models.Model):
    """The settings of one person; without a row every value is its default."""

    class Theme(models.TextChoices):
        """Colours; AUTO follows the system."""

        AUTO = "auto", _("As the system")
        LIGHT = "light", _("Light")
        DARK = "dark", _("Dark")

    class Density(models.TextChoices):
        """Height of a table's row."""

        ROOMY = "roomy", _("Roomy: rows of 40 px")
        NORMAL = "normal", _("Normal: rows of 32 px")
        DENSE = "dense", _("Dense: rows of 26 px")

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="preferences"
    )
    theme = models.CharField(max_length=8, choices=Theme.choices, default=Theme.AUTO)
    density = models.CharField(max_length=8, choices=Density.choices, default=Density.NORMAL)
    # Empty: the browser's.
    zone = models.CharField(max_length=ZONE_CHARACTERS_MAX, blank=True, default="")
    language = models.CharField(max_length=LANGUAGE_CHARACTERS_MAX, blank=True, default="")

    class Meta:
        verbose_name_plural = "preferences"

    def __str__(self) -> str:
        return f"preferences of {self.user_id}"


class Place(models.Model):
    """A page that somebody wants to find again: a favourite, or a view with its filters."""

    class Kind(models.TextChoices):
        """A FAVOURITE is one thing, a VIEW a list with its filters, columns and order."""

        FAVOURITE = "favourite", _("Favourite")
        VIEW = "view", _("Saved view")

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="places"
    )
    kind = models.CharField(max_length=10, choices=Kind.choices)
    label = models.CharField(max_length=LABEL_CHARACTERS_MAX)
    # Path and query, of this console.
    address = models.CharField(max_length=ADDRESS_CHARACTERS_MAX)

    class Meta:
        ordering = ["label", "id"]
        constraints = [
            models.UniqueConstraint(fields=["user", "address"], name="one_place_an_address")
        ]

    def __str__(self) -> str:
        return f"{self.label}: {self.address}"


def preferences_of(user: User | AnonymousUser) -> Preferences:
    """Return a person's settings; the defaults for somebody without any."""
    if user.pk is None:
        return Preferences()
    found = Preferences.objects.filter(user_id=user.pk).first()
    return found or Preferences(user_id=user.pk)
