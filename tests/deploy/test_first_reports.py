"""A new user's path: demo traffic becomes tables, scheduled reports and answers in SQL."""

from __future__ import annotations

import html
import re
import time
from typing import TYPE_CHECKING

import pytest

from analytics.java import require_java
from tests.support.appliance import Appliance, Visitor
from tests.support.raw_remoting import read_queue
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.spark

TOPIC = "orders"
QUEUES = 4
ENOUGH = 60
REPORTS = ("traffic", "sizes", "queues")
SECONDS_MAX = 240
POLL_S = 0.5
TAGS = re.compile(r"<[^>]*>")
MADE = re.compile(
    r"Computed by Spark from the (?:message log|lake table \w+\.\w+)\b.*"
    r"Spark application (\S+)\. "
    r"Stages: ([\d\s]+)\. Tasks: ([\d\s]+)\. Messages counted: ([\d\s]+)\."
)
COUNTS = f"""
SELECT 'bronze', count(*) FROM bronze.messages WHERE topic = '{TOPIC}'
UNION ALL SELECT 'gold', sum(messages)::BIGINT FROM gold.traffic_minute WHERE topic = '{TOPIC}'
ORDER BY 1
"""


def text_of(page: str) -> str:
    return " ".join(html.unescape(TAGS.sub(" ", page)).split())


@pytest.fixture
def appliance(tmp_path: Path) -> Iterator[Appliance]:
    require_java()
    started = Appliance(tmp_path)
    started.start()
    yield started
    started.stop()


def sent(appliance: Appliance) -> int:
    return sum(len(read_queue(appliance.port, TOPIC, queue)) for queue in range(QUEUES))


def counts(visitor: Visitor) -> dict[str, str]:
    """Return how many messages of the topic each table has, by a query on the SQL page."""
    page = visitor.post("/sql/run/", sql=COUNTS, zone="UTC")
    while (running := re.search(r"(/sql/runs/[0-9a-f-]{36}/)progress/", page)) is not None:
        time.sleep(POLL_S)
        page = visitor.read(running[1])
    rows = re.findall(r"<tr><td>(bronze|gold)</td><td[^>]*>(\d*)</td></tr>", page)
    return dict(rows)


def reports(visitor: Visitor) -> dict[str, str]:
    """Return the page of a finished run of each schedule."""
    paths = dict.fromkeys(re.findall(r"/reports/runs/\d+/", visitor.read("/reports/runs/")))
    pages = [page for page in map(visitor.read, paths) if 'id="report-messages"' in page]
    return {
        report: page for page in pages for report in REPORTS if f"by every minute: {report}" in page
    }


def test_demo_traffic_fills_tables_and_three_scheduled_reports_by_themselves(
    appliance: Appliance,
) -> None:
    visitor = Visitor(appliance.url)
    visitor.sign_in()
    visitor.post("/demo/start/")
    until(
        lambda: f"/topics/t/{TOPIC}/" in visitor.read("/topics/") and sent(appliance) >= ENOUGH,
        "demo traffic",
        every_s=POLL_S,
    )
    visitor.post("/demo/stop/")
    count = sent(appliance)

    for report in REPORTS:
        parameters = {f"{report}-hours": "1", f"{report}-topic": TOPIC}
        times = {"kind": "cron", "cron": "* * * * *", "timezone": "UTC", "enabled": "on"}
        name = f"every minute: {report}"
        visitor.post(f"/reports/schedules/new/{report}/", name=name, **times, **parameters)
    expected = {"bronze": str(count), "gold": str(count)}
    until(lambda: counts(visitor) == expected, "tables", seconds=SECONDS_MAX, every_s=2 * POLL_S)
    until(
        lambda: len(reports(visitor)) == len(REPORTS),
        "a run of each schedule",
        seconds=SECONDS_MAX,
        every_s=POLL_S,
    )

    for page in reports(visitor).values():
        assert f'id="report-messages" data-value="{count}"' in page
        found = MADE.search(text_of(page))
        assert found is not None, text_of(page)
        stages, tasks, rows = (int("".join(number.split())) for number in found.groups()[1:])
        assert (min(stages, tasks), rows) >= (1, 1)
