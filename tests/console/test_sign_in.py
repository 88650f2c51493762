"""Password guessing: which attempts count, who is locked out, and who isn't."""

from __future__ import annotations

import contextlib
import re
from datetime import timedelta
from io import StringIO

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from console.accounts import devices, throttle
from console.accounts.hashing import BusyError, UnknownBrowserQueue
from console.accounts.models import FailedSignIn
from console.lib.networks import UNKNOWN, network_of, site_of

pytestmark = pytest.mark.django_db

PASSWORD = "correct horse battery"
LOCKED = "Too many failed attempts"


def sign_in(client, password: str = PASSWORD, username: str = "ada", address: str = "10.0.0.9"):
    return client.post(
        reverse("accounts:sign-in"),
        {"username": username, "password": password},
        REMOTE_ADDR=address,
    )


def miss(times: int, *, username: str = "ada", address: str = "10.0.0.9") -> None:
    """Count failed attempts as the form does, without the page."""
    for _ in range(times):
        with contextlib.suppress(throttle.RefusedError):
            throttle.stranger(username, address).count()


@pytest.fixture
def known_browser(admin_account) -> Client:
    """A browser in which ada signed in and out."""
    browser = Client()
    sign_in(browser)
    browser.post(reverse("accounts:sign-out"))
    return browser


def test_repeated_failures_lock_the_account_even_for_the_right_password(admin_account) -> None:
    for _ in range(throttle.ACCOUNT_AND_NETWORK_MAX):
        assert sign_in(Client(), "wrong").status_code == 200

    response = sign_in(Client())

    assert response.status_code == 429
    assert response["retry-after"] == "900"
    assert LOCKED in response.content.decode()


def test_a_lockout_applies_to_the_whole_network(admin_account) -> None:
    miss(throttle.ACCOUNT_AND_NETWORK_MAX, address="10.0.0.9")

    assert sign_in(Client(), address="10.0.0.200").status_code == 429
    assert sign_in(Client(), address="10.0.1.9").status_code == 302


def test_guesses_from_many_networks_lock_out_strangers_from_the_account(admin_account) -> None:
    for number in range(throttle.ACCOUNT_MAX):
        miss(1, address=f"10.0.{number}.1")

    assert sign_in(Client(), address="10.1.0.1").status_code == 429


def test_a_network_that_guesses_at_many_accounts_is_locked_out(admin_account) -> None:
    for number in range(throttle.NETWORK_MAX):
        miss(1, username=f"name{number}", address=f"10.0.0.{number}")

    assert sign_in(Client(), address="10.0.0.250").status_code == 429


def test_a_customers_ipv6_addresses_count_together(admin_account) -> None:
    for number in range(throttle.SITE_MAX):
        miss(1, username=f"name{number}", address=f"2001:db8:1:{number:x}::1")

    assert sign_in(Client(), address="2001:db8:1:ffff::1").status_code == 429
    assert sign_in(Client(), address="2001:db8:2::1").status_code == 302


def test_a_known_browser_is_not_locked_out_by_others(known_browser) -> None:
    for number in range(throttle.NETWORK_MAX):
        miss(1, username=f"name{number}")
    for number in range(throttle.ACCOUNT_MAX):
        miss(1, address=f"10.0.{number}.1")
    assert sign_in(Client()).status_code == 429

    assert sign_in(known_browser).status_code == 302


def test_guesses_in_a_known_browser_are_also_counted(known_browser) -> None:
    for _ in range(throttle.DEVICE_MAX + throttle.ACCOUNT_AND_NETWORK_MAX):
        sign_in(known_browser, "wrong")

    assert sign_in(known_browser).status_code == 429


def test_a_browser_is_known_for_the_account_that_signed_in_there(
    known_browser, reader_account
) -> None:
    miss(throttle.ACCOUNT_AND_NETWORK_MAX, username="rita")
    ada = next(value for name, value in known_browser.cookies.items() if "_device_" in name)
    known_browser.cookies[devices.cookie_name("rita")] = ada.value

    assert sign_in(known_browser, username="rita").status_code == 429


def test_two_users_may_share_a_browser(known_browser, reader_account) -> None:
    sign_in(known_browser, username="rita")
    known_browser.post(reverse("accounts:sign-out"))
    miss(throttle.ACCOUNT_AND_NETWORK_MAX)

    assert sign_in(known_browser).status_code == 302


@pytest.mark.parametrize("change", ["forged", "expired", "password"])
def test_an_invalid_device_cookie_counts_as_a_strangers(
    change, known_browser, admin_account, monkeypatch
) -> None:
    name = devices.cookie_name("ada")
    if change == "forged":
        known_browser.cookies[name] = known_browser.cookies[name].value[:-1] + "x"
    elif change == "expired":
        monkeypatch.setattr(devices, "LIFETIME", timedelta(seconds=-1))
    else:
        admin_account.set_password(PASSWORD)
        admin_account.save()
    miss(throttle.ACCOUNT_AND_NETWORK_MAX)

    assert sign_in(known_browser).status_code == 429


def test_the_device_cookie_grants_nothing_and_no_script_reads_it(known_browser) -> None:
    cookie = known_browser.cookies[devices.cookie_name("ada")]

    assert (cookie["httponly"], cookie["samesite"]) == (True, "Strict")
    assert known_browser.get(reverse("overview:index")).status_code == 302


def test_a_lockout_ends_after_its_window(admin_account) -> None:
    miss(throttle.ACCOUNT_AND_NETWORK_MAX)
    FailedSignIn.objects.update(last_failure_at=timezone.now() - throttle.WINDOW)

    assert sign_in(Client()).status_code == 302


def test_rejected_attempts_do_not_prolong_a_lockout(admin_account) -> None:
    miss(throttle.ACCOUNT_AND_NETWORK_MAX)
    before = dict(FailedSignIn.objects.values_list("key", "last_failure_at"))

    miss(3)

    assert dict(FailedSignIn.objects.values_list("key", "last_failure_at")) == before


def test_success_clears_this_account_but_not_others(admin_account) -> None:
    miss(3, username="bob")
    miss(throttle.ACCOUNT_AND_NETWORK_MAX - 1)

    sign_in(Client())
    miss(throttle.ACCOUNT_AND_NETWORK_MAX - 1)

    assert sign_in(Client()).status_code == 302
    network = FailedSignIn.objects.get(key="network:10.0.0.0/24")
    assert network.failures == 3 + 2 * (throttle.ACCOUNT_AND_NETWORK_MAX - 1)


def test_an_attempt_is_counted_before_the_password_is_checked(admin_account) -> None:
    attempt = throttle.stranger("ada", "10.0.0.9")

    for _ in range(throttle.ACCOUNT_AND_NETWORK_MAX):
        attempt.count()

    with pytest.raises(throttle.LockedError):
        attempt.count()


def test_a_full_table_rejects_strangers_and_admits_known_browsers(
    known_browser, monkeypatch
) -> None:
    monkeypatch.setattr(throttle, "ROWS_MAX", 40)
    for number in range(60):
        miss(1, username=f"name{number}", address=f"10.{number}.0.1")
    assert FailedSignIn.objects.count() <= 40

    stranger = sign_in(Client(), username="bob", address="10.99.0.1")

    assert (stranger.status_code, stranger["retry-after"]) == (429, "5")
    assert "Too many people are signing in" in stranger.content.decode()
    assert sign_in(known_browser).status_code == 302
    FailedSignIn.objects.update(last_failure_at=timezone.now() - throttle.WINDOW)
    assert sign_in(Client(), address="10.99.0.1").status_code == 302


def test_typed_names_are_not_stored(admin_account) -> None:
    miss(1, username="my-secret-typed-too-early")

    assert not FailedSignIn.objects.filter(key__contains="secret").exists()


def test_the_lockout_can_be_lifted_on_the_machine_itself(admin_account) -> None:
    miss(throttle.ACCOUNT_AND_NETWORK_MAX)

    call_command("unlock_sign_in", stdout=StringIO())

    assert sign_in(Client()).status_code == 302


def change_password(client, old: str):
    new = "nine lives of a purple cat"
    form = {"old_password": old, "new_password1": new, "new_password2": new}
    return client.post(reverse("accounts:password"), form)


def test_guessing_the_old_password_is_limited(actors) -> None:
    for _ in range(throttle.PASSWORD_CHANGES_MAX):
        assert change_password(actors.reader, "wrong").status_code == 200

    response = change_password(actors.reader, PASSWORD)

    assert response.status_code == 429
    assert LOCKED in response.content.decode()


def test_a_new_password_keeps_the_browser_known(known_browser) -> None:
    sign_in(known_browser)
    assert change_password(known_browser, PASSWORD).status_code == 302
    known_browser.post(reverse("accounts:sign-out"))
    miss(throttle.ACCOUNT_AND_NETWORK_MAX)

    assert sign_in(known_browser, "nine lives of a purple cat").status_code == 302


def test_strangers_have_a_short_queue() -> None:
    line = UnknownBrowserQueue(waiting_max=0, wait_s=0)

    with line.turn(), pytest.raises(BusyError), line.turn():
        pass
    with line.turn():
        pass


def test_a_client_that_waits_too_long_is_turned_away() -> None:
    line = UnknownBrowserQueue(waiting_max=1, wait_s=0)

    with line.turn(), pytest.raises(BusyError), line.turn():
        pass


@pytest.mark.parametrize(
    ("address", "network", "site"),
    [
        ("10.1.2.3", "10.1.2.0/24", "10.1.2.0/24"),
        ("::ffff:10.1.2.3", "10.1.2.0/24", "10.1.2.0/24"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64", "2001:db8:1::/48"),
        ("fe80::1%eth0", "fe80::/64", "fe80::/48"),
        ("", UNKNOWN, UNKNOWN),
    ],
)
def test_an_address_counts_for_its_network(address, network, site) -> None:
    assert (network_of(address), site_of(address)) == (network, site)


def test_the_page_offers_advice_when_it_is_locked(admin_account) -> None:
    miss(throttle.ACCOUNT_AND_NETWORK_MAX)

    page = sign_in(Client()).content.decode()

    assert re.search(r"Browsers .* signed in with before", page)


def test_accounts_get_current_password_hashes_when_they_sign_in(settings, admin_account) -> None:
    settings.PASSWORD_HASHERS = [
        "console.accounts.hashing.Argon2InTurn",
        "django.contrib.auth.hashers.MD5PasswordHasher",
    ]

    assert sign_in(Client()).status_code == 302

    stored = get_user_model().objects.get(username="ada").password
    assert stored.startswith("argon2$argon2id$v=19$m=32768,t=3,p=1$")
