"""Any report is rendered from its description: the console has no report-specific code.

`handovers` exists in tests/console/fake_analytics.py only.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.test import Client
from django.urls import reverse
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from console.data.reports import catalog, health, schedules, tasks
from console.data.reports.models import ReportRun, RunState

if TYPE_CHECKING:
    from pytest_django.fixtures import Settings

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = Path(__file__).with_name("fake_analytics.py")


@pytest.fixture(autouse=True)
def program(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.clear()
    settings.TREBUCHET_DATA = tmp_path
    settings.TREBUCHET_ANALYTICS_COMMAND = [sys.executable, str(PROGRAM)]
    monkeypatch.setenv("ORACLE", "1")
    monkeypatch.setattr(health, "redis_responds", lambda _: True)
    monkeypatch.setattr(health, "worker_responds", lambda: True)


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(tasks.run_report, "apply_async", lambda **how: sent.append(how))
    return sent


@pytest.fixture
def admin() -> Client:
    client = Client()
    client.force_login(get_user_model().objects.create_user("admin", is_staff=True))
    return client


def text_of(client: Client, name: str, *arguments: object) -> str:
    """Return the page's HTML with whitespace collapsed; thin spaces in numbers stay."""
    page = client.get(reverse(f"reports:{name}", args=arguments)).content.decode()
    return re.sub(r"[ \n]+", " ", page)


def finished_run() -> ReportRun:
    parameters = {"least": 5, "group": "fraud-check"}
    run = ReportRun.objects.create(report="handovers", parameters=parameters)
    tasks.perform(run, worker="test")
    run.refresh_from_db()
    assert run.state == RunState.DONE, run.failure
    return run


def test_no_console_code_or_template_names_a_report() -> None:
    names = re.compile(r"traffic|handovers", re.IGNORECASE)
    reports = ROOT / "console" / "data" / "reports"

    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in reports.rglob("*")
        if path.suffix in {".py", ".html", ".js", ".css"} and "migrations" not in path.parts
        for line in path.read_text().splitlines()
        if names.search(line)
    ]

    assert found == []


def test_the_form_has_the_described_parameters(admin: Client) -> None:
    page = text_of(admin, "list")

    assert '<option value="handovers">Handovers of queues</option>' in page
    assert "How often did a queue change its consumer?" in page
    assert "At least so many handovers" in page
    assert "Queues with fewer are left out." in page
    (number,) = re.findall(r'<input type="number" name="handovers-least"[^>]*>', page)
    assert {'value="3"', 'min="2"', 'max="50"'} <= set(number.split())
    (text,) = re.findall(r'<input type="text" name="handovers-group"[^>]*>', page)
    assert 'maxlength="12"' in text
    assert 'list="report-topics"' not in text


def test_it_starts_with_the_forms_values(admin: Client, queued: list[dict[str, Any]]) -> None:
    given = {"report": "handovers", "handovers-least": "5", "handovers-group": " fraud-check "}

    admin.post(reverse("reports:start"), {**given, "traffic-hours": "6"})

    run = ReportRun.objects.get()
    assert (run.report, run.parameters) == ("handovers", {"least": 5, "group": "fraud-check"})
    assert len(queued) == 1


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"report": "handovers", "handovers-least": "1"}, "At least so many handovers: Ensure"),
        ({"report": "handovers", "handovers-group": "g" * 13}, "Consumer group: Ensure"),
        ({"report": "gossip"}, "Report: Select a valid choice"),
    ],
)
def test_a_value_out_of_range_is_rejected_with_an_explanation(
    admin: Client, queued: list[dict[str, Any]], given: dict[str, str], sentence: str
) -> None:
    page = admin.post(reverse("reports:start"), given, follow=True).content.decode()

    assert sentence in page
    assert not queued
    assert not ReportRun.objects.exists()


def test_the_program_is_called_with_its_parameters(settings: Settings) -> None:
    run = finished_run()

    assert f"handovers --store {settings.TREBUCHET_STORE} --out" in run.log_tail
    assert run.log_tail.endswith("--least 5 --group fraud-check")


def test_totals_table_and_sums_are_shown_as_described(admin: Client) -> None:
    run = finished_run()

    page = text_of(admin, "run", run.pk)

    assert "<title>Handovers of queues" in page
    assert "At least so many handovers: 5 · Consumer group: fraud-check" in page
    assert 'id="report-changes" data-value="2052">2\u202f052<' in page
    assert "of all queues" in page
    assert 'id="report-groups" data-value="2">2<' in page
    assert 'id="report-unsaid" data-value=""><span class="unknown"' in page
    heads = '<th>Hour (UTC)</th><th>Group</th><th class="num">Handovers</th>'
    assert heads in page.replace("> <", "><")
    rows = re.findall(r"<td[^>]*>\s*([^<]*)</td>", page.rpartition("<tbody>")[2])
    assert rows == [
        *("2026-11-21 09:00", "fraud-check", "2\u202f048"),
        *("2026-11-21 07:00", "billing", "4"),
    ]
    sums = page.partition("By group")[2].partition("</tbody>")[0]
    assert re.findall(r"<td[^>]*>\s*([^<]*)</td>", sums) == [
        *("fraud-check", "2\u202f048"),
        *("billing", "4"),
    ]


def test_the_chart_uses_the_described_columns(admin: Client) -> None:
    run = finished_run()

    chart = admin.get(reverse("reports:chart", args=[run.pk])).json()

    assert chart["step"] == "Handovers per hour, in your time zone"
    assert [b - a for a, b in zip(chart["times"], chart["times"][1:], strict=False)] == [3600, 3600]
    assert {each["label"]: each["values"] for each in chart["series"]} == {
        "fraud-check": [0, 0, 2048],
        "billing": [4, 0, 0],
    }
    assert "Handovers by group" in text_of(admin, "run", run.pk)


def test_the_csv_has_the_described_columns(admin: Client) -> None:
    run = finished_run()

    answer = admin.get(reverse("reports:csv", args=[run.pk]))

    text = b"".join(answer.streaming_content).decode()  # type: ignore[attr-defined]
    assert text.splitlines()[:2] == [
        "hour,consumer_group,handovers",
        "2026-11-21T07:00:00Z,billing,4",
    ]


def test_the_table_of_runs_shows_its_first_totals(admin: Client) -> None:
    finished_run()

    row = text_of(admin, "runs").partition("<tbody>")[2]

    assert "Handovers of queues" in row
    assert '2\u202f052 <small class="unit">All handovers</small>' in row
    assert '2 <small class="unit">Groups affected</small>' in row


def test_a_schedule_of_the_report_has_its_parameters(admin: Client) -> None:
    hourly, _ = IntervalSchedule.objects.get_or_create(every=1, period="hours")
    schedule = PeriodicTask.objects.create(
        name="Handovers",
        task=schedules.SCHEDULED_TASK,
        interval=hourly,
        kwargs='{"report": "handovers", "parameters": {"least": 7}}',
    )
    page = text_of(admin, "schedule", schedule.pk)
    when = {"kind": "interval", "every": "2", "period": "hours"}

    assert 'name="handovers-least" value="7"' in page
    admin.post(
        reverse("reports:schedule", args=[schedule.pk]),
        {**when, "handovers-least": "9", "handovers-group": "billing"},
    )

    schedule.refresh_from_db()
    assert schedules.arguments(schedule)["parameters"] == {"least": 9, "group": "billing"}
    assert schedules.in_words(schedule) == "every 2 hours"


def test_an_old_result_is_shown_with_its_original_description(
    admin: Client, settings: Settings
) -> None:
    run = finished_run()
    settings.TREBUCHET_ANALYTICS_COMMAND = ["/nonexistent/program"]

    page = text_of(admin, "run", run.pk)

    assert "Handovers of queues" in page
    assert 'id="report-changes"' in page


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (
            "import a_package_that_is_not_there",
            "working: ModuleNotFoundError: No module named 'a_package_that_is_not_there'",
        ),
        ("print('{')", "describes its reports in an unknown format"),
        ('print(\'{"format": 2, "reports": []}\')', "in format 2; the console expects 1"),
        ("raise SystemExit(3)", "working: no reason given."),
    ],
)
def test_a_broken_analytics_package_is_reported_with_a_remedy(
    admin: Client, settings: Settings, tmp_path: Path, code: str, sentence: str
) -> None:
    (tmp_path / "broken.py").write_text(code + "\n")
    settings.TREBUCHET_ANALYTICS_COMMAND = [sys.executable, str(tmp_path / "broken.py")]

    page = text_of(admin, "list").replace("&#x27;", "'")
    answer = admin.post(reverse("reports:start"), {"report": "traffic"}, follow=True)

    assert sentence in page
    assert "<code>deploy/up</code>" in page
    assert 'id="start-report"' not in page
    assert sentence in answer.content.decode().replace("&#x27;", "'")
    assert not ReportRun.objects.exists()


def test_describe_is_queried_once_and_again_after_the_program_changed(
    settings: Settings, tmp_path: Path
) -> None:
    counted = tmp_path / "counted.py"
    counted.write_text(
        f"import pathlib, runpy\n"
        f"pathlib.Path({str(tmp_path / 'asked')!r}).open('a').write('x')\n"
        f"runpy.run_path({str(PROGRAM)!r}, run_name='__main__')\n"
    )
    settings.TREBUCHET_ANALYTICS_COMMAND = [sys.executable, str(counted)]

    for _ in range(3):
        assert list(catalog.reports()) == ["traffic", "handovers"]
    asked_before = (tmp_path / "asked").read_text()
    settings.TREBUCHET_ANALYTICS_COMMAND = [sys.executable, "-B", str(counted)]
    catalog.reports()

    assert (asked_before, (tmp_path / "asked").read_text()) == ("x", "xx")


def test_the_real_program_is_recognized(settings: Settings) -> None:
    settings.TREBUCHET_ANALYTICS_COMMAND = None

    found = catalog.reports()

    assert {"traffic", "keys"} <= set(found)
    assert [parameter.name for parameter in found["traffic"].parameters] == [
        "hours",
        "topic",
        "compare",
    ]
    assert [need.name for need in found["traffic"].needs] == ["java"]
