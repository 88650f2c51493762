"""Confusable names: an account can't be created with one in any way."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.urls import reverse

from console.accounts.lookalikes import prototypes, refuse_lookalike, skeleton
from console.accounts.models import Invitation
from tests.console.api.conftest import Program
from tests.console.conftest import PASSWORD
from tests.support.sources import ROOT

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("brokers")]

MIXED = [
    "\u0430da",  # a Cyrillic a
    "ad\u0430",
    "\u0391da",  # a Greek Alpha
    "ad\u0561",  # an Armenian ayb
    "p\u0430ypal",
    "o\u0440erator",
]
LIKE_ADA = [
    "\u0251da",  # a Latin alpha
    "ad\u0251",
]
LIKE_OTHERS = {
    "ace": "\u0430\u0441\u0435",  # Cyrillic alone
    "burn": "bum",
    "ops1": "opsl",
    "opsI": "ops1",
    "team0": "teamO",
    "grace": "\u0261race",  # a Latin script g
}
ONE_SCRIPT = [
    *("grace", "j\u00f6rg", "\u0418\u0432\u0430\u043d", "\u0395\u03bb\u03ad\u03bd\u03b7"),
    *("\u738b\u5c0f\u660e", "\u5c71\u7530taro", "\u3084\u307e\u3060\u30ab\u30ca", "\uae40\ubbfc"),
    *("ada.lovelace", "ada-2", "ada@example.org", "\u05d3\u05d5\u05d3", "\u0639\u0644\u064a"),
]


@pytest.mark.parametrize("name", MIXED, ids=ascii)
def test_a_name_of_several_scripts_is_rejected(name, admin_account) -> None:
    with pytest.raises(ValidationError, match="mixes similar-looking letters"):
        refuse_lookalike(name)


@pytest.mark.parametrize("name", LIKE_ADA, ids=ascii)
def test_a_name_that_looks_like_an_account_is_rejected(name, admin_account) -> None:
    with pytest.raises(ValidationError, match="looks like the existing name ada"):
        refuse_lookalike(name)


@pytest.mark.parametrize(("known", "name"), LIKE_OTHERS.items(), ids=ascii)
@pytest.mark.parametrize("is_reversed", [False, True])
def test_the_order_of_arrival_of_two_makes_no_difference(known, name, is_reversed) -> None:
    first, second = (name, known) if is_reversed else (known, name)
    get_user_model().objects.create_user(first)

    with pytest.raises(ValidationError, match="looks like"):
        refuse_lookalike(second)


@pytest.mark.parametrize("name", ONE_SCRIPT, ids=ascii)
def test_names_in_all_languages_are_accepted(name, admin_account) -> None:
    refuse_lookalike(name)


def test_an_invited_name_blocks_similar_ones(actors) -> None:
    actors.admin.post(reverse("people:invite"), {"name": "grace", "role": "viewer"})

    with pytest.raises(ValidationError, match="looks like the existing name grace"):
        refuse_lookalike("\u0261race")
    refuse_lookalike("grace", invited_as="grace")


@pytest.mark.parametrize("name", ["\u0430da", "\u0251da"], ids=ascii)
def test_such_a_name_cannot_be_invited(name, actors, admin_account) -> None:
    page = actors.admin.post(reverse("people:invite"), {"name": name, "role": "viewer"})
    program = Program(admin_account).post("/invitations", {"name": name, "role": "viewer"})

    assert (page.status_code, program.status_code) == (422, 422)
    assert not Invitation.objects.exists()


def test_an_invitation_becomes_invalid_once_a_similar_name_exists(actors, client) -> None:
    html = actors.admin.post(
        reverse("people:invite"), {"name": "grace", "role": "viewer"}, follow=True
    ).text
    link = re.search(r"/accounts/join/[^\"<\s]+", html)
    assert link is not None
    get_user_model().objects.create_user("\u0261race")

    answer = client.post(link[0], {"new_password1": PASSWORD, "new_password2": PASSWORD})

    assert answer.status_code == 404
    assert not get_user_model().objects.filter(username="grace").exists()


@pytest.mark.parametrize("name", ["\u0430da", "\u0251da"], ids=ascii)
def test_the_command_creates_no_such_account(name, admin_account, monkeypatch) -> None:
    with pytest.raises(CommandError, match=r"mixes similar-looking letters|looks like"):
        call_command("add_account", name)

    assert get_user_model().objects.count() == 1


def test_the_first_administrator_cannot_have_such_a_name_either(
    reader_account, monkeypatch
) -> None:
    monkeypatch.setenv("TREBUCHET_ADMIN", "r\u0456ta")

    with pytest.raises(
        CommandError, match="TREBUCHET_ADMIN: This name mixes similar-looking letters"
    ):
        call_command("ensure_admin")

    assert get_user_model().objects.count() == 1


def test_every_path_to_deleting_an_account_asks_for_its_name() -> None:
    """Every code path that creates an account rejects names that look like others."""
    making = re.compile(r"create_user\(|create_superuser\(|get_user_model\(\)\(username=")
    asking = {
        path.relative_to(ROOT / "console").as_posix(): path.read_text()
        for path in sorted((ROOT / "console").rglob("*.py"))
        if making.search(path.read_text())
    }

    # A password form needs an account to compare with, which isn't stored.
    assert set(asking) - {"people/accounts/views.py"} == {
        "accounts/oidc.py",
        "accounts/invitations.py",
        "people/accounts/management/commands/add_account.py",
        "people/accounts/management/commands/ensure_admin.py",
    }
    for name, text in asking.items():
        assert "refuse_lookalike(" in text or name == "people/accounts/views.py"


def test_skeletons_match_unicodes_table() -> None:
    """Samples of confusables.txt, and the definition of skeletons in UTS 39."""
    alike = [("\u0430", "a"), ("\u0440", "p"), ("\u03bf", "o"), ("m", "rn"), ("l", "1"), ("I", "l")]
    alike += [("\u2170", "i"), ("\uff41", "a"), ("\U0001d41a", "a"), ("\u0585", "o"), ("0", "O")]

    for one, other in alike:
        assert skeleton(one) == skeleton(other), (one, other)
    for text in ("paypal", "\u0440\u0430\u0443\u0440\u0430l", "e\u0301", "\u00e9", "modern"):
        assert skeleton(skeleton(text)) == skeleton(text)
    assert skeleton("e\u0301") == skeleton("\u00e9")
    assert skeleton("abc") != skeleton("abd")
    assert len(prototypes()) > 6_000
