"""The second step of signing in: prompted, throttled, required, removed, and audited."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils.crypto import salted_hmac
from django_otp.oath import TOTP
from django_otp.plugins.otp_totp.models import TOTPDevice

from console.accounts import second_step, throttle
from console.accounts.models import RecoveryCode
from console.accounts.second_step import OFFERED_KEY, PENDING_MS
from console.accounts.sessions import account_of
from console.people.audit.models import Entry
from tests.console.conftest import PASSWORD
from tests.support.sources import ROOT

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("brokers")]

NOW_S = 1_795_000_000
SIGN_IN, CODE = reverse("accounts:sign-in"), reverse("accounts:code")
SET_UP, STATE = reverse("accounts:second-step-set-up"), reverse("accounts:second-step")
HOME = reverse("topics:list")


class Clock:
    """The time used for codes."""

    def __init__(self) -> None:
        self.now = float(NOW_S)

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("django_otp.plugins.otp_totp.models.time.time", clock.time)
    monkeypatch.setattr("console.accounts.second_step.now_ms", lambda: int(clock.now * 1_000))
    return clock


def code_of(key: str, at_s: float) -> str:
    totp = TOTP(bytes.fromhex(key))
    totp.time = at_s
    return f"{totp.token():06d}"


@pytest.fixture
def device(reader_account, clock) -> TOTPDevice:
    return TOTPDevice.objects.create(user=reader_account, name="app")


def password_shown(name: str = "rita") -> Client:
    """Return a browser in which the password was correct."""
    browser = Client()
    answer = browser.post(SIGN_IN, {"username": name, "password": PASSWORD, "next": "/topics/"})
    assert answer["location"] == CODE
    return browser


def test_a_password_is_not_enough_for_users_with_a_second_step(device, clock) -> None:
    browser = password_shown()
    assert browser.get(HOME).status_code == 302

    wrong = browser.post(CODE, {"code": "000000"})
    assert wrong.status_code == 422
    assert browser.get(HOME).status_code == 302

    right = browser.post(CODE, {"code": code_of(device.key, clock.now)})
    assert right["location"] == "/topics/"
    assert browser.get(HOME).status_code == 200
    entry = Entry.objects.get(action="account.sign-in", outcome="done")
    assert (entry.subject, entry.after) == ("rita", {"with": "app"})
    refused = Entry.objects.get(action="account.sign-in", outcome="refused")
    assert refused.subject == "rita"


def test_a_code_is_valid_once_and_only_near_its_time(device, clock) -> None:
    code = code_of(device.key, clock.now)
    password_shown().post(CODE, {"code": code})

    assert password_shown().post(CODE, {"code": code}).status_code == 422
    clock.now += 90
    assert password_shown().post(CODE, {"code": code_of(device.key, NOW_S)}).status_code == 422
    assert password_shown().post(CODE, {"code": code_of(device.key, clock.now)}).status_code == 302


def test_codes_cannot_be_guessed(device, clock) -> None:
    browser = password_shown()
    for _ in range(throttle.SECOND_STEPS_MAX):
        browser.post(CODE, {"code": "000000"})

    answer = browser.post(CODE, {"code": code_of(device.key, clock.now)})

    assert answer.status_code == 422
    assert "Too many failed attempts" in answer.content.decode()


def test_a_correct_password_waits_five_minutes_for_its_code(device, clock) -> None:
    browser = password_shown()
    clock.now += PENDING_MS / 1_000 + 1

    answer = browser.post(CODE, {"code": code_of(device.key, clock.now)})

    assert answer["location"] == SIGN_IN


def test_a_new_password_ends_the_wait_for_a_code(device, clock, reader_account) -> None:
    browser = password_shown()
    reader_account.set_password("nine lives of a purple cat")
    reader_account.save()

    assert browser.post(CODE, {"code": code_of(device.key, clock.now)})["location"] == SIGN_IN


def set_up(browser: Client, clock: Clock) -> list[str]:
    """Set up the second step; return the recovery codes shown."""
    browser.get(SET_UP)
    code = code_of(browser.session[OFFERED_KEY], clock.now)
    html = browser.post(SET_UP, {"code": code}).content.decode()
    return re.findall(r"[0-9a-f]{4}(?:-[0-9a-f]{4}){4}", html)


def test_it_is_enabled_once_a_code_proves_that_the_app_has_the_key(actors, clock) -> None:
    elsewhere = Client()
    elsewhere.post(SIGN_IN, {"username": "rita", "password": PASSWORD})
    assert elsewhere.get(HOME).status_code == 200
    shown = actors.reader.get(SET_UP).content.decode()
    key = actors.reader.session[OFFERED_KEY]
    assert 'src="data:image/svg' in shown

    assert actors.reader.post(SET_UP, {"code": "000000"}).status_code == 422
    assert not TOTPDevice.objects.exists()
    codes = set_up(actors.reader, clock)

    assert TOTPDevice.objects.get().key == key
    assert len(set(codes)) == second_step.RECOVERY_CODES
    # They began with one step.
    assert elsewhere.get(HOME).status_code == 302
    assert actors.reader.get(HOME).status_code == 200
    assert Entry.objects.filter(action="account.second-step-on", outcome="done").count() == 1
    kept = f"{list(RecoveryCode.objects.values())}{list(Entry.objects.values())}"
    assert codes[0] not in kept
    assert codes[0].replace("-", "") not in kept
    assert codes[0] not in actors.reader.get(STATE).content.decode()


def test_a_recovery_code_signs_in_once(actors, clock) -> None:
    first, *_others = set_up(actors.reader, clock)

    used = password_shown().post(CODE, {"code": f" {first.upper()} "}, follow=True)
    again = password_shown().post(CODE, {"code": first})

    assert "You have 9 left" in used.content.decode()
    assert again.status_code == 422
    assert Entry.objects.filter(after={"with": "recovery code"}).count() == 1


def test_renewing_recovery_codes_and_disabling_the_second_step_need_a_code(actors, clock) -> None:
    old, *_others = set_up(actors.reader, clock)
    renew, off = reverse("accounts:second-step-codes"), reverse("accounts:second-step-off")

    assert actors.reader.post(renew, {"code": "000000"}).status_code == 422
    html = actors.reader.post(renew, {"code": old}).content.decode()
    codes = re.findall(r"[0-9a-f]{4}(?:-[0-9a-f]{4}){4}", html)
    assert len(codes) == second_step.RECOVERY_CODES
    assert actors.reader.post(off, {"code": old}).status_code == 422
    assert TOTPDevice.objects.exists()
    actors.reader.post(off, {"code": codes[0]})

    assert not TOTPDevice.objects.exists()
    assert not RecoveryCode.objects.exists()
    assert Client().post(SIGN_IN, {"username": "rita", "password": PASSWORD})["location"] == "/"


def test_an_administrator_removes_it_from_another_account(actors, device, reader_account) -> None:
    page = reverse("people:second-step-off", args=[reader_account.pk])
    assert "Turn off two-step authentication for rita?" in actors.admin.get(page).content.decode()

    actors.admin.post(page)

    assert not TOTPDevice.objects.exists()
    entry = Entry.objects.get(action="account.second-step-off")
    assert (entry.actor_name, entry.subject) == ("ada", "rita")


def test_the_machines_administrator_removes_it_from_the_last_administrator(device) -> None:
    call_command("take_off_second_step", "rita", stdout=StringIO())

    assert not TOTPDevice.objects.exists()
    assert Entry.objects.get().action == "account.second-step-off"
    with pytest.raises(CommandError):
        call_command("take_off_second_step", "rita", stdout=StringIO())


@pytest.mark.parametrize(
    ("mode", "admin_waits", "reader_waits"),
    [("optional", False, False), ("administrators", True, False), ("everyone", True, True)],
)
def test_a_user_who_needs_it_sees_nothing_before_it_is_set_up(
    mode, admin_waits, reader_waits, actors, settings, clock
) -> None:
    settings.TREBUCHET_SECOND_STEP = mode

    for client, waits in ((actors.admin, admin_waits), (actors.reader, reader_waits)):
        for answer in (client.get(HOME), client.post(reverse("marks:add"), {"text": "x"})):
            assert (answer.headers.get("location") == STATE) is waits
    if admin_waits:
        set_up(actors.admin, clock)
        assert actors.admin.get(HOME).status_code == 200
        actors.admin.post(reverse("accounts:second-step-off"), {"code": "000000"})
        assert TOTPDevice.objects.filter(user__username="ada").exists()


def test_a_session_that_must_set_up_a_second_step_opens_no_socket(actors, settings) -> None:
    key = actors.reader.session.session_key
    assert account_of(key)

    settings.TREBUCHET_SECOND_STEP = "everyone"

    assert account_of(key) is None


@pytest.mark.parametrize("fallbacks", [["old-" * 20], []], ids=["rotated", "rotated and forgotten"])
def test_recovery_codes_survive_a_new_secret_key(
    fallbacks, device, reader_account, settings
) -> None:
    settings.SECRET_KEY = "old-" * 20
    first, second, *_others = second_step.new_recovery_codes(reader_account)

    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "new-" * 20, fallbacks
    used = password_shown().post(CODE, {"code": first})
    again = password_shown().post(CODE, {"code": first})
    other = password_shown().post(CODE, {"code": second})

    assert [used.status_code, again.status_code, other.status_code] == [302, 422, 302]


def test_a_recovery_code_works_while_its_secret_key_is_kept(
    device, reader_account, settings
) -> None:
    code = "0123456789abcdef"
    digest = salted_hmac("accounts.recovery_code", code, "old-" * 20, algorithm="sha256")
    RecoveryCode.objects.create(user=reader_account, digest=digest.hexdigest())

    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "new-" * 20, []
    assert password_shown().post(CODE, {"code": code}).status_code == 422
    settings.SECRET_KEY_FALLBACKS = ["other-" * 20, "old-" * 20]
    assert password_shown().post(CODE, {"code": code}).status_code == 302
    assert password_shown().post(CODE, {"code": code}).status_code == 422


def test_no_stored_digest_uses_only_the_secret_key() -> None:
    """`signing` also accepts the old keys; a keyed digest doesn't."""
    using = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "console").rglob("*.py"))
        if re.search(r"salted_hmac\(|\.SECRET_KEY\b", path.read_text())
    ]

    assert using == [
        "console/accounts/second_step.py",  # for codes made this way, with every key
        "console/accounts/throttle.py",  # counters of 15 minutes
    ]
