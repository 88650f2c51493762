"""A result besides its rows: the summary, bars, the previous period, links."""

from __future__ import annotations

import copy
import html
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from console.data.reports import catalog, presenting, results
from console.data.reports.models import ReportRun, RunState
from console.data.reports.presenting import ShownRun, milliseconds_text
from console.observe.alerts import fonts, rasters

if TYPE_CHECKING:
    from pytest_django.fixtures import Settings

pytestmark = pytest.mark.django_db

REPORT: dict[str, Any] = {
    "name": "weights",
    "title": "Weights",
    "question": "How heavy?",
    "parameters": [],
    "columns": [
        {"name": "topic", "type": "string", "label": "Topic", "link": "topic"},
        {"name": "group", "type": "string", "label": "Group", "link": "group"},
        {"name": "host", "type": "string", "label": "Host", "link": "planet"},
        {"name": "weight", "type": "bigint", "label": "Weight", "unit": "bytes"},
    ],
    "totals": [
        {"name": "weight", "label": "Weight", "unit": "bytes"},
        {"name": "share", "label": "Share", "unit": "permille"},
        {"name": "things", "label": "Things"},
    ],
    "bars": {"label": "Weight by topic", "by": "topic", "value": "weight"},
}
ROW = {"topic": "a/b", "group": "%RETRY%x", "host": "<h>", "weight": "2048"}
RESULT: dict[str, Any] = {
    "report": REPORT,
    "rows": [ROW],
    "totals": {"weight": "2048", "share": "500", "things": "30"},
    "bars": {
        "rows": [{"by": "a/b", "value": "2048"}, {"by": "c", "value": "512"}],
        "count": 5,
        "others": "1024",
    },
    "finding": {
        "text": "%(name)s has %(weight)s, %(share)s of all, for %(time)s.",
        "figures": {
            "name": {"value": "<b>100%</b>"},
            "weight": {"value": "2048", "unit": "bytes"},
            "share": {"value": "123", "unit": "permille"},
            "time": {"value": "1500", "unit": "milliseconds"},
        },
    },
    "before": {
        "from": "1795251442000",
        "to": "1795255042000",
        "totals": {"weight": "1024", "share": "250", "things": "30"},
    },
}


def run_of(result: dict[str, Any]) -> ReportRun:
    now = timezone.now()
    return ReportRun.objects.create(
        report="weights",
        state=RunState.DONE,
        started_at=now,
        finished_at=now,
        result=result,
        result_rows=len(result["rows"]),
    )


def page_of(result: dict[str, Any]) -> str:
    client = Client()
    client.force_login(get_user_model().objects.get_or_create(username="reader")[0])
    answer = client.get(reverse("reports:run", args=[run_of(result).pk]))
    assert answer.status_code == 200
    return re.sub(r"[ \n]+", " ", answer.content.decode())


def test_the_summary_has_figures_with_units_and_no_markup_from_messages() -> None:
    page = page_of(RESULT)

    (sentence,) = re.findall(r'id="report-finding">([^<]*)</p>', page)
    assert html.unescape(sentence) == "<b>100%</b> has 2.0 KiB, 12.3 % of all, for 1.5 s."


def test_bars_have_the_length_of_their_value_and_the_others_come_last() -> None:
    bars = page_of(RESULT).partition('id="report-bars"')[2].partition("</dl>")[0]

    assert re.findall(r'value="(\d+)"', bars) == ["1000", "250", "500"]
    assert "3 more" in bars
    assert "1.0 KiB" in bars


def test_values_link_to_the_pages_they_name() -> None:
    page = page_of(RESULT)

    assert f'<a href="{reverse("topics:detail", args=["a/b"])}">a/b</a>' in page
    assert f'<a href="{reverse("groups:detail", args=["%RETRY%x"])}">%RETRY%x</a>' in page
    assert "&lt;h&gt;" in page


def test_totals_are_compared_with_the_previous_period() -> None:
    shown = ShownRun(run_of(RESULT))

    assert [(str(each.before_text), each.change) for each in shown.totals] == [
        ("1.0 KiB", "+100 %"),
        ("25.0 %", "+25.0 points"),
        ("30", ""),
    ]
    assert 'data-moment="1795251442000"' in page_of(RESULT)


@pytest.mark.parametrize(
    ("now", "before", "change"),
    [("5", "0", ""), ("0", "5", "-100 %"), ("5000", "5", "1000 times as many")],
)
def test_a_change_is_shown_where_it_matters(now: str, before: str, change: str) -> None:
    result = copy.deepcopy(RESULT)
    result["totals"]["things"] = now
    result["before"]["totals"]["things"] = before

    assert ShownRun(run_of(result)).totals[2].change == change


def test_a_log_with_a_short_history_is_not_compared_with_zero() -> None:
    result = {**RESULT, "before": {"from": "1", "to": "2"}}

    page = page_of(result)

    assert "The log doesn't cover the start" in page
    assert "report-before" not in page


@pytest.mark.parametrize(
    "spoiled",
    [
        {"finding": {"text": "%(absent)s.", "figures": {}}},
        {"finding": {"text": "100 %y", "figures": {}}},
        {"finding": "text"},
        {"bars": {"rows": [{"by": "a", "value": "much"}], "count": 1}},
        {"bars": None},
        {"before": {"from": "1"}},
        {"engine": {"name": "spark", "because": {"text": "%(absent)s", "figures": {}}}},
    ],
)
def test_an_undisplayable_result_is_rejected(spoiled: dict[str, Any]) -> None:
    report = catalog.report_of(REPORT)
    results.check(report, RESULT)

    with pytest.raises(ValueError, match="doesn't match the report's description"):
        results.check(report, RESULT | spoiled)


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 ms"), (999, "999 ms"), (1_500, "1.5 s"), (90_000, "1 min 30 s")]
)
def test_milliseconds_are_shown_in_a_suitable_unit(number: int, text: str) -> None:
    assert milliseconds_text(number) == text


@pytest.mark.parametrize(
    ("stage", "done", "seconds"), [("reading", 1, 30), ("reading", 0, None), ("comparing", 1, None)]
)
def test_the_remaining_time_follows_from_the_finished_tasks(
    stage: str, done: int, seconds: int | None
) -> None:
    run = ReportRun(
        state=RunState.RUNNING, stage=stage, progress_done=done, progress_total=4, report="weights"
    )
    run.started_at = timezone.now() - timedelta(seconds=10)

    left = ShownRun(run).seconds_left

    assert left is None if seconds is None else abs((left or 0) - seconds) < 10


def test_the_page_explains_which_engine_made_the_result_and_why() -> None:
    by_spark = {
        "name": "spark",
        "because": {
            "text": "%(bytes)s of the log are not in the lake yet.",
            "figures": {"bytes": {"value": "2147483648", "unit": "bytes"}},
        },
    }

    of_lake = {
        "name": "spark",
        "because": None,
        "reads": "bronze.messages",
        "application_id": "local-17",
        "stages": "3",
        "tasks": "14",
        "rows": "1200300",
    }

    refused = page_of({**RESULT, "engine": by_spark})
    answered = page_of({**RESULT, "engine": of_lake, "erased": "2"})
    earlier = page_of({**RESULT, "engine": {"name": "duckdb", "because": None}})
    afar = page_of({**RESULT, "engine": {"name": "spark", "because": None, "brokers": "ns:9876"}})

    assert "Computed by Spark from the brokers at ns:9876 over the network" in afar
    assert "Computed by Spark from the message log. 2.0 GiB of the log are not in" in refused
    assert "Spark application" not in refused
    assert "Message log, counted by Spark" in refused
    assert "Computed by Spark from the lake table bronze.messages" in answered
    assert (
        "Spark application local-17. Stages: 3. Tasks: 14. Messages counted: 1\u202f200\u202f300."
        in answered
    )
    assert "2 messages in the lake lost their keys in an erasure" in answered
    assert "Lake table bronze.messages, counted by Spark" in answered
    assert "Computed from the lake by an earlier version." in earlier


def test_our_words_are_shown_by_their_label_and_names_are_left_alone() -> None:
    result = copy.deepcopy(RESULT)
    result["report"]["columns"][0] |= {"words": {"a/b": "consumers"}, "link": ""}

    page = page_of(result)
    row = page.rpartition("<tbody>")[2]

    assert "consumers" in row
    assert "a/b" not in row
    assert "consumers" in page.partition('id="report-bars"')[2].partition("</dl>")[0]


SAMPLED: dict[str, Any] = {
    **RESULT,
    "report": {**REPORT, "reads_samples": True},
    "engine": {"name": "spark", "because": None, "reads": "bronze.samples"},
    "sampled_from": "1795251442000",
    "sampled_to": "1795255042000",
}


def test_a_result_from_samples_names_them_instead_of_a_log() -> None:
    page = page_of({**SAMPLED, "before": {"from": "1", "to": "2"}, "rows": []})

    assert "Computed by Spark from the collector's samples" in html.unescape(page)
    assert 'data-moment="1795255042000"' in page
    assert "The samples don't cover the start" in page
    assert "samples for this time contain no matching data" in html.unescape(page)
    assert "The log" not in page
    assert "Lake table bronze.samples, counted by Spark" in page_of(SAMPLED)


@pytest.mark.parametrize(
    ("is_reading", "text"),
    [(True, "Weight, one point per minute, in your time zone"), (False, "Weight per minute, in")],
)
def test_a_chart_of_readings_explains_that_its_points_do_not_add_up(
    is_reading: bool, text: str
) -> None:
    chart = {"time": "at", "value": "weight", "series": "topic", "step_seconds": 60, "label": "x"}
    result = copy.deepcopy(RESULT)
    result["report"]["chart"] = {**chart, "is_reading": is_reading}
    series = [{"label": label, "values": [1, None]} for label in ("a", "", None)]
    result["chart"] = {"stepSeconds": 60, "times": [0, 60], "series": series}
    results.check(catalog.report_of(result["report"]), result)
    client = Client()
    client.force_login(get_user_model().objects.get_or_create(username="reader")[0])

    found = client.get(reverse("reports:chart", args=[run_of(result).pk])).json()

    assert found["isReading"] is is_reading
    assert found["step"].startswith(text)
    assert [each["label"] for each in found["series"]] == ["a", "-", "all others"]
    assert found["series"][0]["values"] == [1, None]


def test_a_picture_with_missing_glyphs_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rasters, "is_font_missing", lambda _: True)
    lacking = page_of(RESULT)
    monkeypatch.setattr(rasters, "is_font_missing", lambda _: False)

    assert f"apt-get install --no-install-recommends {fonts.PACKAGE}" in lacking
    assert fonts.PACKAGE not in page_of(RESULT)


def test_a_samples_report_shows_on_its_card_that_it_has_no_lake(settings: Settings) -> None:
    of_samples = catalog.report_of({**REPORT, "reads_samples": True})
    settings.TREBUCHET_LAKE = ""

    (lacking,) = presenting.lake_problems(of_samples)

    assert "TREBUCHET_LAKE=false" in lacking.sentence
    assert presenting.lake_problems(catalog.report_of(REPORT)) == []
    settings.TREBUCHET_LAKE = "/var/lake"
    assert presenting.lake_problems(of_samples) == []


def test_a_hidden_column_is_in_the_csv_and_a_missing_value_is_marked() -> None:
    result = copy.deepcopy(RESULT)
    result["report"]["columns"][2] |= {"is_shown": False}
    result["report"]["columns"][3] |= {"missing": "not at this rate"}
    result["rows"] = [{**ROW, "weight": None}]

    page = page_of(result)
    table = page.rpartition("<thead>")[2]
    lines = "".join(results.csv_lines(catalog.report_of(result["report"]).columns, result["rows"]))

    assert "Host" not in table
    assert "not at this rate" in table
    assert lines.splitlines()[0] == "topic,group,host,weight"
