"""Settings of a console in production: Django's own check, and changed keys."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from django.core.exceptions import ImproperlyConfigured

from console import secret_key
from tests.support.appliance import Visitor
from tests.support.broker_process import ROOT
from tests.support.web_process import WebProcess

if TYPE_CHECKING:
    from pathlib import Path

PLAIN_HTTP = {"security.W004", "security.W008", "security.W012", "security.W016"}


def check(directory: Path, **environment: str) -> tuple[int, str]:
    """Run Django's check of production settings; return its exit code and output."""
    done = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=ROOT,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "console.settings",
            "TREBUCHET_DATA": str(directory),
            **environment,
        },
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_console_on_loopback_passes(tmp_path) -> None:
    assert check(tmp_path) == (0, "System check identified no issues (4 silenced).\n")


def test_a_console_behind_tls_passes_without_silenced_checks(tmp_path) -> None:
    code, words = check(
        tmp_path,
        TREBUCHET_WEB="0.0.0.0:8000",
        TREBUCHET_HTTPS="true",
        TREBUCHET_BEHIND_PROXY="true",
        TREBUCHET_ALLOWED_HOSTS="console.example.org",
    )

    assert (code, words) == (0, "System check identified no issues (0 silenced).\n")


def test_a_console_on_the_network_without_tls_does_not_pass(tmp_path) -> None:
    code, words = check(tmp_path, TREBUCHET_WEB="0.0.0.0:8000")

    assert code != 0
    assert all(name in words for name in PLAIN_HTTP)


@pytest.mark.parametrize("name", ["TREBUCHET_SECRET_KEY", "TREBUCHET_SECRET_KEY_FALLBACKS"])
def test_a_guessable_key_is_not_accepted(tmp_path, name) -> None:
    keys = {"TREBUCHET_SECRET_KEY": "k" * 8 + secret_key.new_key(), name: "secret"}

    code, words = check(tmp_path, **keys)

    assert code != 0
    assert "security.W0" in words


def test_users_stay_signed_in_when_the_key_is_changed(tmp_path) -> None:
    web = WebProcess(tmp_path)
    web.start()
    visitor = Visitor(web.url)
    visitor.sign_in(then="/accounts/password/")

    def title_after(*changes: list[str]) -> str:
        web.stop()
        for arguments in changes:
            web.run("django", "rotate_secret_key", *arguments)
        web.launch()
        return visitor.read("/accounts/password/").partition("<title>")[2].partition(" ")[0]

    assert title_after([], []) == "Change"
    assert title_after(["--forget"]) == "Sign"
    web.stop()


def test_changing_the_key_keeps_two_old_ones(tmp_path) -> None:
    path = tmp_path / "key"
    secret_key.make(path)

    seen = [secret_key.rotate(path, forget=False).current for _ in range(4)]

    assert secret_key.load_or_make(path) == (seen[3], [seen[2], seen[1]])
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["key"]
    assert secret_key.rotate(path, forget=True).fallbacks == []


def test_a_key_that_is_too_short_stops_the_start(tmp_path) -> None:
    path = tmp_path / "key"
    path.write_text(f"{secret_key.new_key()}\nshort\n")

    with pytest.raises(ImproperlyConfigured, match="fewer than 50 characters"):
        secret_key.load_or_make(path)
