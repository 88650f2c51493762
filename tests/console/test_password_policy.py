"""Rejected passwords, and the reasons."""

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
        ("readerreader", "too repetitive"),
        ("readerreaderread", "too repetitive"),
        ("Abc1Abc1Abc1", "too repetitive"),
        ("aaaaaaaaaaaaaaaa", "too repetitive"),
        ("aabbaababbababba", "different characters"),
        ("123456789012", "alphabet or keyboard"),
        ("qwertyuiop[]", "alphabet or keyboard"),
        ("abcdefghijkl", "alphabet or keyboard"),
        ("reader-2026!", "too similar to the name"),
        ("R3ader_R3ader", "too similar to the name"),
        ("redaer-2026!", "too similar to the name"),
        ("trebuchet2026", "too similar to the name"),
        ("RocketMQ-1234", "too similar to the name"),
        ("Password-2026", "too similar to the name"),
        ("thunderbird1985", "too common"),
        ("!!monkey!!!!!", "too common"),
        ("short-words", "at least 12"),
    ],
)
def test_a_password_that_guessers_try_first_is_rejected(password, words) -> None:
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
def test_a_custom_password_is_accepted(password) -> None:
    assert problems(password) == ""


def test_a_generated_password_is_accepted() -> None:
    for _ in range(100):
        assert problems(generated()) == ""


@pytest.mark.parametrize(
    ("text", "part"), [("abab", "ab"), ("ababa", "ab"), ("aa", "a"), ("abcab", "abcab"), ("", "")]
)
def test_the_repeated_part_is_found(text, part) -> None:
    assert repeated_part(text) == part
