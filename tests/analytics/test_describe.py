"""`python -m analytics describe`: the one catalogue."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from analytics.__main__ import main
from analytics.arguments import parse_arguments
from analytics.reports.catalog import REPORTS
from analytics.reports.describe import FORMAT, catalog
from analytics.reports.report import TYPE_NAMES
from tests.analytics.run_report import ROOT


def test_it_is_printed_as_json_without_java_and_without_a_store() -> None:
    environment = {**os.environ, "PATH": "/nowhere", "JAVA_HOME": "/nowhere"}

    found = subprocess.run(
        [sys.executable, "-m", "analytics", "describe"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert json.loads(found.stdout) == json.loads(json.dumps(catalog(REPORTS.values())))


def test_it_names_every_report_with_its_form_and_page_data(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["describe"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert found["format"] == FORMAT
    assert [report["name"] for report in found["reports"]] == list(REPORTS)
    for report in found["reports"]:
        assert report["title"]
        assert report["question"].endswith("?")
        columns = {column["name"]: column for column in report["columns"]}
        assert {column["type"] for column in columns.values()} <= set(TYPE_NAMES.values())
        assert all(column["label"] for column in columns.values())
        assert set(report["sorted_by"]) <= set(columns)
        assert {total["column"] for total in report["totals"]} <= {"", *columns}
        if report["behind"] is not None:
            behind = report["behind"]
            assert columns[behind["topic"]]["link"] == (
                "group" if any(behind["prefixes"].values()) else "topic"
            )
            assert {columns[name]["unit"] for name in behind["prefixes"]} <= {"messages"}
            assert {behind["first"], behind["last"], behind["key"]} <= {"", *columns}
            assert any(column["unit"] == "messages" for column in columns.values())
        if report["chart"] is not None:
            assert columns[report["chart"]["time"]]["type"] == "timestamp"
            assert columns[report["chart"]["value"]]["type"] == "bigint"
            assert report["chart"]["series"] in columns
        for column in columns.values():
            assert not column["words"] or column["type"] == "string"
            assert all(column["words"].values())
        if report["breakdown"] is not None:
            assert {report["breakdown"]["by"], *report["breakdown"]["sums"]} <= set(columns)


@pytest.mark.parametrize("report", REPORTS.values(), ids=list(REPORTS))
def test_every_parameter_is_an_option_that_takes_all_its_choices(report) -> None:
    for parameter in report.parameters:
        for choice in parameter.choices:
            if choice.value is None:
                continue
            option = (f"--{parameter.name}", str(choice.value))
            request = parse_arguments([report.name, "--store", "a", "--out", "b", *option])

            assert request is not None
            assert request.parameters == {parameter.name: choice.value}
        values = {choice.value for choice in parameter.choices}
        assert not values or parameter.default in values


def test_the_named_command_checks_its_prerequisites() -> None:
    (need,) = catalog(REPORTS.values())["reports"][0]["needs"]

    found = subprocess.run(
        need["check"],
        cwd=ROOT,
        env={"PATH": "/nowhere"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert found.returncode == 1
    assert set(json.loads(found.stdout)) == {"sentence", "remedy", "command"}


@pytest.mark.parametrize("report", REPORTS.values(), ids=list(REPORTS))
def test_its_description_matches_what_it_reads(report) -> None:
    """A report of samples has no log to describe, and the newest hour isn't sampled yet."""
    answer = [
        text
        for parameter in report.parameters
        for text in (parameter.help, *(choice.label for choice in parameter.choices))
    ]

    assert not any("log is read" in text for text in answer)
    if report.samples:
        assert not any("log" in text.split() for text in answer)
        assert any("samples are up to an hour old" in text for text in answer)
        assert report.chart.is_reading


# Our own names, units and words; adding another column here is a decision.
OF_NO_MESSAGE = {
    *("topic", "origin_topic", "consumer_group", "producer_group", "client", "host", "owner"),
    *("change", "direction", "kind", "language", "reason", "role", "size", "state", "version"),
}


def test_a_text_found_only_by_messages_names_its_topic() -> None:
    """Keys and tags are only for users who can see the messages of their topic."""
    telling = {}
    for report in REPORTS.values():
        columns = {column.name: column for column in report.columns}
        for name, column in columns.items():
            if column.from_messages_of:
                assert columns[column.from_messages_of].link == "topic"
                telling[report.name] = name
            elif TYPE_NAMES[column.type] == "string":
                assert name in OF_NO_MESSAGE, f"{report.name}: whose are the values of {name}?"

    assert telling == {"keys": "key", "duplicates": "value", "origins": "origin"}
