"""A session belongs to its user, lasts one working day at most, and ends when it should."""

from __future__ import annotations

from datetime import timedelta
from http.cookies import SimpleCookie
from typing import TYPE_CHECKING

import pytest
from django.conf import settings as console_settings
from django.contrib.sessions.models import Session
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.console.conftest import PASSWORD

if TYPE_CHECKING:
    from django.contrib.auth.models import User

pytestmark = pytest.mark.django_db

NEW_PASSWORD = "another correct horse"
COOKIE = console_settings.SESSION_COOKIE_NAME


def signed_in(name: str, client: Client | None = None) -> Client:
    client = client or Client()
    answer = client.post(reverse("accounts:sign-in"), {"username": name, "password": PASSWORD})
    assert answer.status_code == 302
    return client


def is_let_in(client: Client) -> bool:
    return client.get(reverse("overview:index")).status_code == 200


def with_cookie(value: str) -> Client:
    client = Client()
    client.cookies = SimpleCookie({COOKIE: value})
    return client


def test_a_planted_session_does_not_become_the_users(admin_account: User, brokers: object) -> None:
    client = Client()
    planted = client.session
    planted["planted"] = True
    planted.save()
    before = planted.session_key
    assert before is not None
    client.cookies[COOKIE] = before

    signed_in("ada", client)

    assert is_let_in(client)
    assert client.cookies[COOKIE].value != before
    assert not is_let_in(with_cookie(before))


def test_a_session_ends_after_twelve_hours_of_any_activity(
    admin_account: User, brokers: object
) -> None:
    client = signed_in("ada")
    row = Session.objects.get()
    ends = row.expire_date
    assert ends <= timezone.now() + timedelta(hours=12)

    assert is_let_in(client)
    row.refresh_from_db()
    assert row.expire_date == ends, "it must not go on for as long as somebody holds a cookie"

    Session.objects.update(expire_date=timezone.now() - timedelta(seconds=1))
    assert not is_let_in(client)


def test_a_new_password_ends_the_sessions_of_other_browsers(
    admin_account: User, brokers: object
) -> None:
    here, elsewhere = signed_in("ada"), signed_in("ada")

    answer = here.post(
        reverse("accounts:password"),
        {
            "old_password": PASSWORD,
            "new_password1": NEW_PASSWORD,
            "new_password2": NEW_PASSWORD,
        },
    )

    assert answer.status_code == 302
    assert is_let_in(here)
    assert not is_let_in(elsewhere)


def test_a_disabled_account_is_signed_out_immediately(admin_account: User, brokers: object) -> None:
    client = signed_in("ada")

    admin_account.is_active = False
    admin_account.save()

    assert not is_let_in(client)


def test_an_administrator_demoted_to_read_only_changes_nothing_more(
    admin_account: User, brokers: object
) -> None:
    client = signed_in("ada")
    assert client.get(reverse("topics:create")).status_code == 200

    admin_account.is_staff = admin_account.is_superuser = False
    admin_account.save()

    assert client.get(reverse("topics:create")).status_code == 403
    assert is_let_in(client)


def test_a_cookie_is_useless_after_signing_out(admin_account: User, brokers: object) -> None:
    client = signed_in("ada")
    cookie = client.cookies[COOKIE].value
    assert is_let_in(with_cookie(cookie))

    client.post(reverse("accounts:sign-out"))

    assert not is_let_in(with_cookie(cookie))


def test_no_script_reads_the_cookie_and_no_other_page_sends_it(admin_account: User) -> None:
    morsel = signed_in("ada").cookies[COOKIE]

    assert morsel["httponly"]
    assert morsel["samesite"] == "Lax"
    assert morsel["path"] == "/"
    assert not morsel["domain"]
