"""Validators that reject the passwords attackers try first, and common variations of them."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from django.contrib.auth.password_validation import CommonPasswordValidator, MinimumLengthValidator
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser

DIFFERENT_CHARACTERS_MIN = 6
STEPS_SHARE_MAX = 0.6
REST_CHARACTERS_MIN = 8
"""The number of characters that a password needs in addition to a well-known name."""
NAME_CHARACTERS_MIN = 3
KNOWN_WORDS = ("trebuchet", "rocketmq", "administrator", "password")
SEQUENCES = ("abcdefghijklmnopqrstuvwxyz", "01234567890", "qwertyuiop", "asdfghjkl", "zxcvbnm")
PLAIN_LETTERS = str.maketrans("013457@$!", "oieastasi")
STEPS = frozenset(
    pair
    for sequence in SEQUENCES
    for one, other in itertools.pairwise(sequence)
    for pair in (one + other, other + one)
)


class LengthValidator(MinimumLengthValidator):
    """Rejects short passwords, with our own help text."""

    def get_help_text(self) -> str:
        return _("At least %(count)d characters.") % {"count": self.min_length}


class RepetitionValidator:
    """Rejects repetitions, and runs along the alphabet or the keyboard."""

    def validate(self, password: str, user: AbstractBaseUser | None = None) -> None:
        text = password.casefold()
        if len(repeated_part(text)) < len(text):
            raise ValidationError(_("The password is too repetitive."), code="repetition")
        if len(set(text)) < DIFFERENT_CHARACTERS_MIN:
            sentence = _("The password needs at least %(count)d different characters.")
            raise ValidationError(
                sentence, code="repetition", params={"count": DIFFERENT_CHARACTERS_MIN}
            )
        pairs = [one + other for one, other in itertools.pairwise(text)]
        steps = sum(pair in STEPS or pair[0] == pair[1] for pair in pairs)
        if steps > STEPS_SHARE_MAX * len(pairs):
            raise ValidationError(
                _("The password is a sequence from the alphabet or keyboard."), code="sequence"
            )

    def get_help_text(self) -> str:
        return _("No repeated characters and no keyboard runs such as “qwerty”.")


class NameValidator:
    """Rejects the account's or the product's name with few other characters."""

    def validate(self, password: str, user: AbstractBaseUser | None = None) -> None:
        names = list(KNOWN_WORDS)
        if user is not None and len(user.get_username()) >= NAME_CHARACTERS_MIN:
            names.append(user.get_username())
        for text in (password.casefold(), password.casefold().translate(PLAIN_LETTERS)):
            for name in names:
                folded = name.casefold()
                rest = text.replace(folded, "").replace(folded[::-1], "")
                if rest != text and len(rest) < REST_CHARACTERS_MIN:
                    raise ValidationError(
                        _("The password is too similar to the name “%(name)s”."),
                        code="name",
                        params={"name": name},
                    )

    def get_help_text(self) -> str:
        return _("Not your name or the product name with additions.")


class CommonWordValidator(CommonPasswordValidator):
    """Rejects the 20,000 most common passwords, even with digits and punctuation added."""

    def get_help_text(self) -> str:
        return _("Not a common password, with or without digits added.")

    def validate(self, password: str, user: AbstractBaseUser | None = None) -> None:
        text = password.casefold().strip()
        bare = re.sub(r"^[\W\d_]+|[\W\d_]+$", "", text)
        for each in {text, bare, bare.translate(PLAIN_LETTERS), repeated_part(bare)}:
            if each in self.passwords:
                raise ValidationError(
                    _("The password is too common, even with the characters added."),
                    code="common",
                )


def repeated_part(text: str) -> str:
    """Return the shortest part that, repeated at least twice and cut at the end, forms the text."""
    for length in range(1, len(text) // 2 + 1):
        if all(text[index] == text[index - length] for index in range(length, len(text))):
            return text[:length]
    return text
