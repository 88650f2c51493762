"""The demo's buttons: one child of the web process, recorded, and stopped cleanly."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from console.demo import process
from console.processes import start_ticks
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_django.fixtures import Settings

pytestmark = pytest.mark.django_db

# Ends like the demo does: by SIGINT, or when its standard input closes.
PROGRAM = "import sys\ntry:\n    sys.stdin.read()\nexcept KeyboardInterrupt:\n    pass\n"


@pytest.fixture
def demo(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[process.DemoProcess]:
    settings.TREBUCHET_DATA = tmp_path
    monkeypatch.setattr(process, "command", lambda: [sys.executable, "-c", PROGRAM])
    demo = process.DemoProcess()
    yield demo
    demo.stop()


def recorded_pid() -> int:
    return int(json.loads(process.record_file().read_text())["process"]["pid"])


def test_starting_twice_starts_one(demo: process.DemoProcess) -> None:
    assert demo.start()
    pid = recorded_pid()

    assert not demo.start()
    assert recorded_pid() == pid
    assert demo.state().is_running
    assert 0 < demo.state().seconds_left <= process.DEMO_SECONDS


def test_stopping_ends_the_child_and_forgets_it(demo: process.DemoProcess) -> None:
    demo.start()
    pid = recorded_pid()

    assert demo.stop()

    assert start_ticks(pid) is None
    assert not process.record_file().exists()
    assert not demo.state().is_running
    assert not demo.stop()


def test_a_failed_demo_explains_why(
    demo: process.DemoProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = 'raise SystemExit("The demo couldn\'t start: no connection.")'
    monkeypatch.setattr(process, "command", lambda: [sys.executable, "-c", program])
    demo.start()
    until(lambda: not demo.state().is_running, "the demo to fail")

    state = demo.state()

    assert (state.is_running, state.failure) == (False, "The demo couldn't start: no connection.")
    assert demo.start()


def test_a_record_from_an_earlier_boot_is_not_taken_for_the_demo(
    demo: process.DemoProcess,
) -> None:
    stale = {"host": "elsewhere", "pid": 1, "ticks": 1}
    process.record_file().write_text(
        json.dumps({"process": stale, "startedAt": "2026-11-21T10:00:00+00:00", "seconds": 600})
    )

    assert not demo.state().is_running


@pytest.mark.parametrize("text", ["", "{", "[]", '{"startedAt": 5, "seconds": "x"}'])
def test_an_unreadable_record_is_not_a_demo(demo: process.DemoProcess, text: str) -> None:
    process.record_file().write_text(text)

    assert not demo.state().is_running


@pytest.mark.parametrize(("staff", "status"), [(True, 302), (False, 403)])
def test_only_administrators_start_and_stop(
    demo: process.DemoProcess, monkeypatch: pytest.MonkeyPatch, staff: bool, status: int
) -> None:
    monkeypatch.setattr("console.demo.services.demo_process", demo)
    client = Client()
    client.force_login(get_user_model().objects.create_user("someone", is_staff=staff))

    answer = client.post(reverse("demo:start"), {"next": reverse("tracing:river")})

    assert answer.status_code == status
    assert demo.state().is_running is staff
    assert client.get(reverse("demo:start")).status_code == (405 if staff else 403)
    assert client.post(reverse("demo:stop")).status_code == status


def test_the_button_never_leads_to_another_host(
    demo: process.DemoProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.demo.services.demo_process", demo)
    client = Client()
    client.force_login(get_user_model().objects.create_user("admin", is_staff=True))

    answer = client.post(reverse("demo:stop"), {"next": "https://example.org/"})

    assert answer.headers["Location"] == reverse("overview:index")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--rate", "0"], "--rate must be between 1 and 2000, not 0."),
        (["--seconds", "-1"], "--seconds must be above 0, not -1.0."),
        (["--topics", "a b"], "--topics: "),
    ],
)
def test_an_invalid_argument_is_reported_in_one_sentence(
    arguments: list[str], sentence: str
) -> None:
    with pytest.raises(CommandError, match=sentence):
        call_command("demo", *arguments)
