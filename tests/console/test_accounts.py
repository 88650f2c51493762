"""Accounts: signing in and out, the first administrator, more users."""

from __future__ import annotations

from io import StringIO

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import identify_hasher, make_password
from django.core.management import CommandError, call_command
from django.urls import reverse

pytestmark = pytest.mark.django_db

PASSWORD = "correct horse battery"


def sign_in(client, password: str, username: str = "ada", address: str = "127.0.0.1"):
    return client.post(
        reverse("accounts:sign-in"),
        {"username": username, "password": password},
        REMOTE_ADDR=address,
    )


def test_passwords_are_hashed_with_argon2() -> None:
    assert identify_hasher(make_password("x")).algorithm == "argon2"


def test_the_right_password_leads_to_the_overview(client, admin_account) -> None:
    response = sign_in(client, PASSWORD)

    assert response.status_code == 302
    assert response["location"] == reverse("overview:index")


def test_a_wrong_password_is_rejected_without_revealing_which_half_was_wrong(
    client, admin_account
) -> None:
    wrong_password = sign_in(client, "no").content.decode()
    wrong_name = sign_in(client, "no", username="nobody").content.decode()

    assert "Wrong name or password." in wrong_password
    assert "Wrong name or password." in wrong_name


def test_an_absolute_redirect_after_signing_in_is_not_followed(client, admin_account) -> None:
    response = client.post(
        reverse("accounts:sign-in"),
        {"username": "ada", "password": PASSWORD, "next": "https://example.org/"},
    )

    assert response["location"] == reverse("overview:index")


def test_signing_out_needs_a_post(actors, brokers) -> None:
    assert actors.admin.get(reverse("accounts:sign-out")).status_code == 405

    response = actors.admin.post(reverse("accounts:sign-out"))

    assert response.status_code == 302
    assert actors.admin.get(reverse("overview:index")).status_code == 302


def test_a_new_password_works_immediately(actors, client, brokers) -> None:
    response = actors.reader.post(
        reverse("accounts:password"),
        {
            "old_password": PASSWORD,
            "new_password1": "another long secret",
            "new_password2": "another long secret",
        },
    )

    assert response.status_code == 302
    assert sign_in(client, "another long secret", username="rita").status_code == 302


def ensure_admin() -> str:
    out = StringIO()
    call_command("ensure_admin", stdout=out)
    return out.getvalue()


def test_the_first_administrator_gets_a_password_that_is_printed_once(monkeypatch) -> None:
    monkeypatch.delenv("TREBUCHET_ADMIN_PASSWORD", raising=False)

    first = ensure_admin()
    second = ensure_admin()

    password = first.split("password ")[1].split(" ")[0]
    account = get_user_model().objects.get(username="admin")
    assert account.is_staff
    assert account.check_password(password)
    assert second == ""


def test_the_first_password_may_come_from_a_file(monkeypatch, tmp_path) -> None:
    file = tmp_path / "password"
    file.write_text("a long secret of mine\n")
    monkeypatch.delenv("TREBUCHET_ADMIN_PASSWORD", raising=False)
    monkeypatch.setenv("TREBUCHET_ADMIN_PASSWORD_FILE", str(file))
    monkeypatch.setenv("TREBUCHET_ADMIN", "root")

    text = ensure_admin()

    assert "secret" not in text
    assert get_user_model().objects.get(username="root").check_password("a long secret of mine")


def test_a_weak_first_password_is_rejected_in_one_sentence(monkeypatch) -> None:
    monkeypatch.setenv("TREBUCHET_ADMIN_PASSWORD", "1234")

    with pytest.raises(CommandError, match="TREBUCHET_ADMIN_PASSWORD was rejected"):
        ensure_admin()

    assert not get_user_model().objects.exists()


def test_a_non_administrator_account_is_not_promoted(monkeypatch, reader_account) -> None:
    monkeypatch.setenv("TREBUCHET_ADMIN", "rita")

    with pytest.raises(CommandError, match="isn't an administrator"):
        ensure_admin()


def add_account(*arguments: str) -> str:
    out = StringIO()
    call_command("add_account", *arguments, stdout=out)
    return out.getvalue()


def test_more_accounts_are_read_only_by_default(monkeypatch) -> None:
    monkeypatch.delenv("TREBUCHET_ACCOUNT_PASSWORD", raising=False)

    text = add_account("rita")
    add_account("ada", "--administrator")

    accounts = {each.get_username(): each for each in get_user_model().objects.all()}
    password = text.split("password ")[1].split(" ")[0]
    assert accounts["rita"].check_password(password)
    assert not accounts["rita"].is_staff
    assert accounts["ada"].is_staff


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("rita", "An account named rita already exists."),
        ("a b", "isn't a valid name: Enter a valid username"),
    ],
)
def test_an_invalid_account_is_rejected(name, sentence, reader_account) -> None:
    with pytest.raises(CommandError, match=sentence):
        add_account(name)

    assert get_user_model().objects.count() == 1
