"""The terminal of deploy/up shows important lines, and counts the rest."""

from __future__ import annotations

import pytest

from deploy.processes.digest import Digest

INFO = "2026-11-23 04:10:00,123 INFO console.serving GET /topics/ 200"
WARNING = "2026-11-23 04:10:00,123 WARNING broker_core.store - the disk is nearly full"


@pytest.mark.parametrize(
    ("line", "is_shown"),
    [
        (INFO, False),
        (INFO.replace("INFO", "DEBUG"), False),
        (WARNING, True),
        (WARNING.replace("WARNING", "CRITICAL"), True),
        ('{"time":"2026-11-23T04:10:00.123Z","level":"INFO","logger":"a"}', False),
        ('{"time":"2026-11-23T04:10:00.123Z","level":"WARNING","logger":"a"}', True),
        ("812:M 23 Nov 2026 04:10:00.001 * Background saving started", False),
        ("812:M 23 Nov 2026 04:10:00.001 # Out of memory", True),
        ("Segmentation fault", True),
        ("", True),
    ],
)
def test_a_line_is_shown_by_its_level(line: str, is_shown: bool) -> None:
    assert Digest().shows("web", line) is is_shown


def test_a_line_without_a_level_follows_its_processes_previous_line() -> None:
    digest = Digest()
    digest.shows("web", INFO)
    digest.shows("worker", WARNING)

    assert not digest.shows("web", "  and more")
    assert digest.shows("worker", "Traceback (most recent call last):")


def test_hidden_log_lines_are_counted_once_a_minute() -> None:
    now = 0.0
    digest = Digest(lambda: now)
    for name in ("web", "web", "broker"):
        digest.shows(name, INFO)
    early = digest.summary()
    now = 60.0
    report, again = digest.summary(), digest.summary()
    now = 120.0

    assert early is None
    assert report is not None
    assert "broker 1, web 2" in report
    assert "--verbose" in report
    assert again is None
    assert digest.summary() is None  # nothing happened
