"""Names that can be mistaken for others, by Unicode's own tables (UTS 39).

A new account's name must not mix letters from several scripts, such as Cyrillic and Latin, or look
like the name of another account or open invitation. Japanese, Chinese and Korean are written in
several scripts, and with Latin letters.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.translation import gettext as _

from console.accounts.models import Invitation

if TYPE_CHECKING:
    from collections.abc import Mapping

OF_EVERY_SCRIPT = {"COMMON", "INHERITED"}
TOGETHER = (
    {"LATIN", "HAN", "HIRAGANA", "KATAKANA"},
    {"LATIN", "HAN", "BOPOMOFO"},
    {"LATIN", "HAN", "HANGUL"},
)
"""Scripts that are written together: "highly restrictive" in UTS 39, section 5.2."""
MARK = "\u200e"
"""The library's table puts this mark around right-to-left characters."""


def refuse_lookalike(name: str, invited_as: str = "") -> None:
    """Refuse a name for a new account that people could mistake for another.

    Args:
        invited_as: the name of the invitation being accepted, which doesn't count as a conflict.

    Raises:
        ValidationError: the name mixes scripts or looks like another name.
    """
    scripts = scripts_of(name)
    if len(scripts) > 1 and not any(scripts <= each for each in TOGETHER):
        names = ", ".join(sorted(each.capitalize() for each in scripts))
        text = _("This name mixes similar-looking letters (%(scripts)s). Use a single script.")
        raise ValidationError(text % {"scripts": names}, code="mixed_scripts")
    other = lookalike_of(name, invited_as)
    if other is not None:
        text = _("This name looks like the existing name %(name)s. Choose another one.")
        raise ValidationError(text % {"name": other}, code="lookalike")


def scripts_of(name: str) -> set[str]:
    """Return the Unicode names of the scripts that a name's letters belong to."""
    categories = import_module("confusable_homoglyphs.categories")
    return {categories.alias(each) for each in name} - OF_EVERY_SCRIPT


def lookalike_of(name: str, invited_as: str = "") -> str | None:
    """Return the name of another account or open invitation that looks like `name`."""
    own = shapes_of(name)
    invited = Invitation.objects.filter(expires_at__gt=timezone.now()).exclude(name=invited_as)
    names = [
        *get_user_model().objects.order_by("pk").values_list("username", flat=True),
        *invited.order_by("pk").values_list("name", flat=True),
    ]
    return next((each for each in names if shapes_of(each) & own), None)


def shapes_of(name: str) -> set[str]:
    """Return the skeletons of a name, as written and in lower case."""
    return {skeleton(name), skeleton(name.casefold())}


def skeleton(text: str) -> str:
    """Return a text's skeleton, which texts that look alike share (UTS 39, section 4)."""
    known = prototypes()
    decomposed = unicodedata.normalize("NFD", text)
    return unicodedata.normalize("NFD", "".join(known.get(each, each) for each in decomposed))


@lru_cache(maxsize=1)
def prototypes() -> Mapping[str, str]:
    """Return the prototype of each confusable character.

    The library lists Unicode's table as pairs in both directions. Characters that look alike share
    one prototype and form a class with it; the prototype is the member with several characters, if
    any.
    """
    # The table takes half a megabyte and is needed a few times a year.
    table = import_module("confusable_homoglyphs.confusables").confusables_data
    classes: dict[str, set[str]] = {}
    for character, others in table.items():
        members = {character.strip(MARK), *(each["c"].strip(MARK) for each in others)}
        merged = set().union(members, *(classes.get(each, ()) for each in members))
        for each in merged:
            classes[each] = merged
    found = {}
    for character, members in classes.items():
        if len(character) == 1:
            found[character] = min(members, key=lambda each: (-len(each), each))
    return found
