"""The numbers of a report link to the messages that they count."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import duckdb
import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from console.data.reports.models import ReportRun, RunState
from console.data.sql.subjects import query_of

if TYPE_CHECKING:
    from pytest_django.fixtures import Settings

MINUTE = "2026-11-21T08:30:00Z"
MINUTE_MS = 1_795_249_800_000
REPORT: dict[str, Any] = {
    "name": "hits",
    "title": "Hits",
    "question": "How many?",
    "parameters": [],
    "columns": [
        {"name": "topic", "type": "string", "label": "Topic", "link": "topic"},
        {"name": "time", "type": "timestamp", "label": "Time"},
        {"name": "last", "type": "timestamp", "label": "Last"},
        {"name": "key", "type": "string", "label": "Key"},
        {"name": "hits", "type": "bigint", "label": "Hits", "unit": "messages"},
        {"name": "bytes", "type": "bigint", "label": "Bytes", "unit": "bytes"},
    ],
    "breakdown": {"label": "By topic", "by": "topic", "sums": ["hits"]},
}
ROW = {
    "topic": "shop/a b",
    "time": MINUTE,
    "last": "2026-11-21T08:34:59Z",
    "key": "k'1",
    "hits": "7",
    "bytes": "70",
}


def links_of(
    behind: dict[str, Any] | None, *, is_staff: bool = False, name: str = "reader", **result: Any
) -> list[str]:
    """Return the link targets of the numbers on a result's page, its breakdown's first."""
    report = REPORT | ({"behind": behind} if behind is not None else {})
    sums = {"rows": [{"by": "shop/a b", "sums": ["7"]}], "count": 1}
    values = {
        "report": report,
        "rows": [ROW],
        "breakdown": sums,
        "from": str(MINUTE_MS - 3_600_000),
        "to": str(MINUTE_MS + 3_600_000),
        "step_seconds": 300,
    }
    run = ReportRun.objects.create(
        report="hits",
        state=RunState.DONE,
        finished_at=timezone.now(),
        result=values | result,
        result_rows=1,
    )
    client = Client()
    client.force_login(get_user_model().objects.create_user(name, is_staff=is_staff))
    page = client.get(reverse("reports:run", args=[run.pk])).content.decode()
    return [
        html.unescape(each) for each in re.findall(r'class="report-behind" href="([^"]*)"', page)
    ]


def parameters_of(address: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("behind", "low", "high"),
    [
        ({"topic": "topic", "first": "time"}, 0, 300_000),
        ({"topic": "topic", "first": "time", "seconds": 3600}, 0, 3_600_000),
        ({"topic": "topic", "first": "time", "last": "last"}, 0, 300_000),
        ({"topic": "topic"}, -3_600_000, 3_600_000),
    ],
)
def test_a_figure_links_to_the_messages_of_its_topic_and_time(
    behind: dict[str, Any], low: int, high: int
) -> None:
    of_topic, of_row = links_of(behind)

    assert urlsplit(of_row).path == reverse("browse:search")
    assert parameters_of(of_row) == {
        "topic": "shop/a b",
        "from": str(MINUTE_MS + low),
        "to": str(MINUTE_MS + high),
    }
    assert parameters_of(of_topic)["from"] == str(MINUTE_MS - 3_600_000)


@pytest.mark.django_db
def test_a_figure_may_belong_to_a_topic_named_after_its_group() -> None:
    of_group, of_row = links_of({"topic": "topic", "first": "time", "prefixes": {"hits": "%DLQ%"}})

    assert parameters_of(of_group)["topic"] == parameters_of(of_row)["topic"] == "%DLQ%shop/a b"
    assert links_of({"topic": "topic", "prefixes": {"others": "%DLQ%"}}, name="second") == []


@pytest.mark.django_db
def test_a_keys_figure_links_to_the_messages_with_the_key() -> None:
    _, of_row = links_of({"topic": "topic", "first": "time", "key": "key"})

    assert parameters_of(of_row)["key"] == "k'1"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("behind", "result"),
    [(None, {}), ({"topic": "topic"}, {"from": None}), ({"topic": "host"}, {})],
)
def test_a_figure_with_unknown_messages_has_no_link(
    behind: dict[str, Any] | None, result: dict[str, Any]
) -> None:
    assert links_of(behind, **result) == []


@pytest.mark.django_db
def test_permitted_users_query_the_lake_for_data_the_log_has_lost(settings: Settings) -> None:
    settings.TREBUCHET_LAKE = "/data/lake"
    behind = {"topic": "topic", "first": "time"}

    _, of_row = links_of(behind, is_staff=True, log_stored_from=MINUTE_MS + 1)

    assert urlsplit(of_row).path == reverse("sql:editor")
    assert parameters_of(of_row)["topic"] == "shop/a b"


@pytest.mark.django_db
@pytest.mark.parametrize(("is_staff", "log_from"), [(False, MINUTE_MS + 1), (True, MINUTE_MS)])
def test_links_for_other_users_and_data_still_in_the_log_search_the_log(
    settings: Settings, is_staff: bool, log_from: int
) -> None:
    settings.TREBUCHET_LAKE = "/data/lake"
    behind = {"topic": "topic", "first": "time"}

    _, of_row = links_of(behind, is_staff=is_staff, log_stored_from=log_from)

    assert urlsplit(of_row).path == reverse("browse:search")


def test_a_links_query_finds_exactly_its_messages() -> None:
    parameters = {
        "topic": "it's",
        "from": str(MINUTE_MS),
        "to": str(MINUTE_MS + 500),
        "key": "k'1",
    }
    connection = duckdb.connect(":memory:", config={"threads": 1})
    connection.execute("SET TimeZone = 'Asia/Tokyo'")
    connection.execute("CREATE SCHEMA bronze")
    connection.execute(
        "CREATE TABLE bronze.messages AS SELECT DATE '2026-11-21' AS day, topic, "
        "epoch_ms($start + ms)::TIMESTAMP AT TIME ZONE 'UTC' AS store_timestamp, "
        "ms AS queue_offset, 0 AS queue_id, '' AS tags, keys, '' AS uniq_key, 1 AS store_size "
        "FROM (VALUES "
        "('it''s', 0, ['k''1', 'z']), ('it''s', 499, ['k''1']), ('it''s', 500, ['k''1']), "
        "('it''s', 3, ['z']), ('its', 4, ['k''1'])) AS given(topic, ms, keys)",
        {"start": MINUTE_MS},
    )

    rows = connection.sql(query_of(parameters)).project("queue_offset").fetchall()

    assert [row[0] for row in rows] == [0, 499]


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"topic": "a", "from": "5", "to": "5"},
        {"topic": "a", "from": "x", "to": "5"},
        {"topic": "", "from": "1", "to": "5"},
        {"topic": "a", "from": "1", "to": "999999999999999"},
    ],
)
def test_an_address_without_a_topic_and_a_time_is_not_a_query(
    parameters: dict[str, str],
) -> None:
    assert query_of(parameters) == ""
