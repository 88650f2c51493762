"""An alert's life across kill -9 of its process: at least once, in order, no storm."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.console.observe.alerts.driver import CYCLES
from tests.support.http_sink import HttpSink, http_sink
from tests.support.postgres import postgres, programs
from tests.support.smtp_sink import SmtpSink, smtp_sink
from tests.support.sources import ROOT
from tests.support.waiting import until

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.fault

KILLS = 3


@pytest.fixture(params=["sqlite", "postgres"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    with database(request.param) as url:
        yield {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "console.settings",
            "PYTHONPATH": str(ROOT),
            "TREBUCHET_ALERT_TARGETS": "127.0.0.1",
            "TREBUCHET_DATA": str(tmp_path / "data"),
            "TREBUCHET_NAMESRV": "127.0.0.1:9",
            **url,
        }


@contextmanager
def database(kind: str) -> Iterator[dict[str, str]]:
    if kind == "sqlite":
        yield {}
        return
    binaries = programs()
    if binaries is None:
        pytest.skip("PostgreSQL is missing (apt-get install postgresql)")
    with postgres(binaries) as settings:
        # For a URL without a host, the socket's directory replaces it.
        yield {
            "DATABASE_URL": f"postgres://{settings['USER']}@/{settings['NAME']}",
            "PGHOST": settings["HOST"],
        }


def run(environment: Mapping[str, str], *words: str) -> None:
    command = [sys.executable, "tests/console/observe/alerts/driver.py", *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@contextmanager
def process(environment: Mapping[str, str], *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program; kill it at the end if it's still running."""
    with subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def distinct(sink: HttpSink) -> list[Any]:
    """Return the messages in the order of their first arrival; duplicates must be equal."""
    found: dict[str, Any] = {}
    for each in sink.of("/hook"):
        # The link is signed again on each attempt.
        document = {name: value for name, value in each.json().items() if name != "silence_url"}
        assert found.setdefault(document["id"], document) == document
    return list(found.values())


def statuses(sink: HttpSink) -> list[str]:
    return [each["status"] for each in distinct(sink)]


def subjects(post: SmtpSink) -> list[str]:
    """Return the mails' subjects in order; duplicates have the same Message-ID."""
    return list({each["Message-ID"]: each["Subject"] for each in post.mails}.values())


def test_starts_and_ends_arrive_in_order_however_often_it_is_killed(
    environment: dict[str, str], rng: random.Random
) -> None:
    with http_sink() as sink:
        run(environment, "prepare", sink.url())
        for _ in range(KILLS):
            # Killed with a message in flight, which may or may not have arrived.
            count = len(sink.received) + rng.randint(1, 2)
            sink.gate.set()
            with process(environment, "tests/console/observe/alerts/driver.py", "rounds"):
                until(lambda: len(sink.received) >= count - 1, "a message")  # noqa: B023
                sink.gate.clear()
                until(lambda: len(sink.received) >= count, "a message on its way")  # noqa: B023
        sink.gate.set()
        with process(environment, "tests/console/observe/alerts/driver.py", "rounds") as last:
            assert last.communicate()[0].strip() == "done"

    messages = distinct(sink)
    assert statuses(sink) == ["firing", "resolved"] * CYCLES
    numbers = [int(each["id"]) for each in messages]
    assert numbers == sorted(numbers)
    # Each kill repeats the message in flight, and nothing else.
    assert len(messages) < len(sink.received) <= len(messages) + KILLS


def test_a_killed_collector_reports_by_hook_and_mail_once_it_runs_again(
    environment: dict[str, str],
) -> None:
    with http_sink() as sink, smtp_sink() as post:
        environment |= {
            "TREBUCHET_SMTP": f"127.0.0.1:{post.port}",
            "TREBUCHET_SMTP_TLS": "none",
            "TREBUCHET_MAIL_FROM": "trebuchet@example.com",
        }
        run(environment, "now", sink.url())
        sink.gate.clear()
        with process(environment, "manage.py", "collect"):
            until(lambda: len(sink.of("/hook")) == 1, "the message")
        sink.gate.set()

        with process(environment, "manage.py", "collect"):
            until(lambda: len(sink.of("/hook")) > 1, "the repeated message")
            until(lambda: bool(post.mails), "the mail")
            until(lambda: bool(sink.of("/beat")), "a heartbeat")
        # If it's killed before recording a delivery, it sends the message again; no end is among
        # them.
        run(environment, "over")
        with process(environment, "manage.py", "collect"):
            until(lambda: "resolved" in statuses(sink), "the end")
            until(lambda: len(subjects(post)) > 1, "the mail about the resolution")

    assert statuses(sink) == ["firing", "resolved"]
    assert subjects(post) == ["Firing: billing: Lag", "Resolved: billing: Lag"]
