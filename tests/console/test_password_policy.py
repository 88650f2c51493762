"""Which passwords are refused, and for which reason."""

from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError

from console.accounts.password_policy import repeated_part
from console.accounts.passwords import generated


def problems(password: str, username: str = "reader") -> str:
    try:
        validate_password(password, get_user_model()(username=username))
    except ValidationError as error:
        return " ".join(error.messages)
    return ""


@pytest.mark.parametrize(
    ("password", "words"),
    [
        ("readerreader", "repeats itself"),
        ("readerreaderread", "repeats itself"),
        ("Abc1Abc1Abc1", "repeats itself"),
        ("aaaaaaaaaaaaaaaa", "repeats itself"),
        ("aabbaababbababba", "different characters"),
        ("123456789012", "alphabet or the keyboard"),
        ("qwertyuiop[]", "alphabet or the keyboard"),
        ("abcdefghijkl", "alphabet or the keyboard"),
        ("reader-2026!", "little more than the name"),
        ("R3ader_R3ader", "little more than the name"),
        ("redaer-2026!", "little more than the name"),
        ("trebuchet2026", "little more than the name"),
        ("RocketMQ-1234", "little more than the name"),
        ("Password-2026", "little more than the name"),
        ("thunderbird1985", "commonest"),
        ("!!monkey!!!!!", "commonest"),
        ("short-words", "at least 12"),
    ],
)
def test_a_password_that_a_guesser_tries_first_is_refused(password, words) -> None:
    assert words in problems(password)


@pytest.mark.parametrize(
    "password",
    [
        "correct horse battery",
        "a long secret of mine",
        "a readers digest of horses",
        "nine lives of a purple cat",
        "xK9#mQ2$vL5p",
    ],
)
def test_a_password_of_one_s_own_is_taken(password) -> None:
    assert problems(password) == ""


def test_a_generated_password_is_taken() -> None:
    for _ in range(100):
        assert problems(generated()) == ""


@pytest.mark.parametrize(
    ("text", "part"), [("abab", "ab"), ("ababa", "ab"), ("aa", "a"), ("abcab", "abcab"), ("", "")]
)
def test_the_part_that_is_repeated(text, part) -> None:
    assert repeated_part(text) == part
