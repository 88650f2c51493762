"""The sessions page: users see and end their own; administrators see others'."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from console.accounts.browsers import in_words
from console.accounts.models import SignedIn
from console.people.audit.models import Entry
from tests.console.conftest import PASSWORD

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from tests.console.conftest import Actors

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("brokers")]

NEW_PASSWORD = "another correct horse"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
SAFARI = (
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like "
    "Gecko) Version/18.1 Mobile/15E148 Safari/604.1"
)
EDGE = (
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/141.0.0.0 Safari/537.36 Edg/141.0.0.0"
)


def browser(name: str = "rita", agent: str = FIREFOX, address: str = "10.1.2.3") -> Client:
    client = Client(HTTP_USER_AGENT=agent, REMOTE_ADDR=address)
    answer = client.post(reverse("accounts:sign-in"), {"username": name, "password": PASSWORD})
    assert answer.status_code == 302
    return client


def is_in(client: Client) -> bool:
    return client.get(reverse("topics:list")).status_code == 200


def rows(client: Client, url: str = "") -> list[str]:
    """Return the rows of the page's sessions as text, each with the address of its button."""
    html = client.get(url or reverse("accounts:sessions")).content.decode()
    found = re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL)
    return [" ".join(each.split()) for each in found if "-end" in each or "/end/" in each]


def button(row: str) -> str:
    found = re.search(r'action="([^"]+)"', row)
    assert found
    return found[1]


def test_a_user_sees_their_sessions_with_this_browser_first(reader_account: User) -> None:
    browser(agent=SAFARI, address="10.9.9.9")
    here = browser()
    browser(agent=EDGE)

    shown = rows(here)

    assert len(shown) == 3
    assert "Firefox 140 on Linux" in shown[0]
    assert "this session" in shown[0]
    assert "10.1.2.3" in shown[0]
    assert "this session" not in shown[1] + shown[2]
    assert "Safari 18 on iPhone" in shown[1] + shown[2]
    assert "10.9.9.9" in shown[1] + shown[2]


def test_no_page_shows_a_sessions_key(reader_account: User, actors: Actors) -> None:
    client = browser()
    keys = list(Session.objects.values_list("session_key", flat=True))
    own = client.get(reverse("accounts:sessions")).content.decode()
    other = actors.admin.get(reverse("people:detail", args=[reader_account.pk])).content.decode()

    assert len(keys) == 4
    assert not [key for key in keys if key in own + other]


def test_an_ended_session_is_signed_out_immediately_and_others_continue(
    reader_account: User,
) -> None:
    here, there = browser(), browser(agent=SAFARI)

    (other,) = [each for each in rows(here) if "this session" not in each]
    here.post(button(other))

    assert not is_in(there)
    assert is_in(here)
    entry = Entry.objects.get(action="account.session-end")
    assert (entry.subject, entry.actor_name) == ("rita", "rita")
    assert entry.before == {"browser": "Safari 18 on iPhone", "address": "10.1.2.3"}


def test_ending_this_browsers_session_signs_the_user_out(reader_account: User) -> None:
    here = browser()

    answer = here.post(button(rows(here)[0]))

    assert answer["location"].startswith(reverse("accounts:sign-in"))
    assert not is_in(here)


def test_all_other_sessions_end_with_one_click(reader_account: User) -> None:
    here, there, elsewhere = browser(), browser(), browser()

    here.post(reverse("accounts:sessions-end"))

    assert [is_in(each) for each in (here, there, elsewhere)] == [True, False, False]


def test_users_cannot_end_each_others_sessions(
    reader_account: User, admin_account: User, actors: Actors
) -> None:
    of_ada = browser("ada")
    row = SignedIn.objects.get(user=admin_account, address="10.1.2.3")

    here = browser()
    answer = here.post(reverse("accounts:session-end", args=[row.pk]))
    by_operator = actors.operator.post(
        reverse("people:session-end", args=[admin_account.pk, row.pk])
    )

    assert (answer.status_code, by_operator.status_code) == (404, 403)
    assert is_in(of_ada)


def test_an_administrator_ends_one_or_all_of_another_users_sessions(
    reader_account: User, actors: Actors
) -> None:
    one, two = browser(), browser(agent=SAFARI)
    url = reverse("people:detail", args=[reader_account.pk])
    (safari,) = [each for each in rows(actors.admin, url) if "Safari" in each]

    actors.admin.post(button(safari))
    assert [is_in(one), is_in(two)] == [True, False]

    actors.admin.post(reverse("people:sessions-end", args=[reader_account.pk]))
    assert not is_in(one)
    assert not is_in(actors.reader)
    assert is_in(actors.admin)
    ended = Entry.objects.filter(action__startswith="account.session", subject="rita")
    assert {each.actor_name for each in ended} == {"ada"}


def test_a_new_password_ends_the_other_sessions_and_renews_this_one(
    reader_account: User,
) -> None:
    here, there = browser(), browser(agent=SAFARI)
    began = SignedIn.objects.get(agent=FIREFOX).since
    form = {"old_password": PASSWORD, "new_password1": NEW_PASSWORD, "new_password2": NEW_PASSWORD}

    here.post(reverse("accounts:password"), form)

    assert [is_in(here), is_in(there)] == [True, False]
    assert len(rows(here)) == 1
    assert SignedIn.objects.get().since == began


def test_disabling_an_account_ends_its_sessions_permanently(
    reader_account: User, actors: Actors
) -> None:
    client = browser()
    url = reverse("people:switch", args=[reader_account.pk])

    actors.admin.post(url, {"enabled": "off"})
    actors.admin.post(url, {"enabled": "on"})

    assert not is_in(client)


def test_a_session_in_use_is_recorded_once_a_minute(reader_account: User, monkeypatch) -> None:
    client = browser()
    first = SignedIn.objects.get().seen_at
    later = timezone.now() + timedelta(seconds=50)
    monkeypatch.setattr(timezone, "now", lambda: later)

    is_in(client)
    assert SignedIn.objects.get().seen_at == first

    cache.clear()
    is_in(client)
    assert SignedIn.objects.get().seen_at == later


def test_an_expired_session_is_not_listed(reader_account: User) -> None:
    browser(agent=SAFARI)
    Session.objects.update(expire_date=timezone.now() - timedelta(seconds=1))

    assert len(rows(browser())) == 1


def test_signing_in_deletes_the_rows_of_ended_sessions(reader_account: User) -> None:
    browser(agent=SAFARI)
    Session.objects.all().delete()

    browser()

    assert [each.agent for each in SignedIn.objects.all()] == [FIREFOX]


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (FIREFOX, "Firefox 140 on Linux"),
        (SAFARI, "Safari 18 on iPhone"),
        (EDGE, "Edge 141 on Windows"),
        ("curl/8.5.0", "curl 8"),
        ("", "Unknown browser"),
        ("<script>alert(1)</script>", "Unknown browser"),
    ],
)
def test_a_browser_is_described_in_words(agent: str, words: str) -> None:
    assert in_words(agent) == words
