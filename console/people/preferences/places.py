"""A person's places: favourites and saved views, by address."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from django.urls import Resolver404, resolve

from console.people.preferences.models import (
    ADDRESS_CHARACTERS_MAX,
    LABEL_CHARACTERS_MAX,
    PLACES_MAX,
    Place,
)

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def is_console_address(address: str) -> bool:
    """Return whether a path, with or without a query, is a page of this console."""
    if len(address) > ADDRESS_CHARACTERS_MAX or not address.isprintable() or "\\" in address:
        return False
    try:
        parts = urlsplit(address)
        if parts.scheme or parts.netloc or address.startswith("//"):
            return False
        resolve(parts.path)
    except (ValueError, Resolver404):
        return False
    return True


def keep(user: User, address: str, label: str) -> bool:
    """Save a place; return False if the address is invalid or the person has too many."""
    label = " ".join(label.split())[:LABEL_CHARACTERS_MAX]
    if not label or not is_console_address(address):
        return False
    kind = Place.Kind.VIEW if urlsplit(address).query else Place.Kind.FAVOURITE
    mine = Place.objects.filter(user=user)
    if not mine.filter(address=address).exists() and mine.count() >= PLACES_MAX:
        return False
    mine.update_or_create(user=user, address=address, defaults={"label": label, "kind": kind})
    return True


def forget(user: User, address: str) -> None:
    Place.objects.filter(user=user, address=address).delete()
