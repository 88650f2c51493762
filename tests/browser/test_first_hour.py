"""A new user's first hour, and an analyst's second, in a real browser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import ARTIFACTS, REPORT_SECONDS
from tests.support.appliance import Appliance
from tests.support.chromium import sign_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import BrowserContext

    from tests.support.java_clients import JavaClients

pytestmark = [pytest.mark.browser, pytest.mark.interop, pytest.mark.spark]

TOPIC = "FirstHour"
COUNT = 250
DEMO_TOPICS = ("orders", "payments", "telemetry")


@pytest.fixture(scope="module")
def appliance(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    """The appliance with a lake, from which its reports are made."""
    started = Appliance(tmp_path_factory.mktemp("appliance"))
    started.start()
    yield started
    started.stop()


def test_a_user_goes_from_signing_in_to_a_report_that_counts_the_sent_messages(
    appliance: Appliance, context: BrowserContext, java_4: JavaClients
) -> None:
    page = context.new_page()
    sign_in(page, appliance.url)
    navigation = page.get_by_role("navigation", name="Main")

    # A topic.
    navigation.get_by_role("link", name="Topics").click()
    page.get_by_role("link", name="New topic").first.click()
    page.fill("input[name=topic]", TOPIC)
    page.get_by_role("button", name="Review changes").click()
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("heading", name=TOPIC)).to_be_visible()

    # A message appears while the page is open.
    navigation.get_by_role("link", name="Live").click()
    page.locator("#river-line").fill(f"topic:{TOPIC} ")
    expect(page.locator("#river-state")).to_have_attribute("data-state", "ok")
    # A reload would lose this.
    page.evaluate("window.sameDocument = true")
    sent = java_4.send(
        appliance.namesrv, TOPIC, modes="sync,async", count=COUNT // 2, tags="A,B", prefix="live"
    )
    rows = page.locator("#river-rows tr")
    expect(rows.filter(has_text=re.compile(r"live-a?sync-\d+")).first).to_be_visible()
    expect(rows.filter(has_text=TOPIC).first).to_be_visible()
    assert page.evaluate("window.sameDocument") is True
    expect(page.locator("#river-dropped")).to_have_text("0")
    page.screenshot(path=ARTIFACTS / "live-with-messages-1280.png")

    # Pausing keeps the current rows.
    page.locator("#river-pause").click()
    expect(page.locator("#river-pause")).to_have_attribute("aria-pressed", "true")
    java_4.send(appliance.namesrv, TOPIC, modes="sync", count=1, tags="A", prefix="while-paused")
    expect(page.locator("#river-waiting")).not_to_have_text("0")
    assert rows.filter(has_text="while-paused").count() == 0
    page.locator("#river-pause").click()
    expect(rows.filter(has_text="while-paused").first).to_be_visible()

    # One message: its row stays, and the others are hidden until the filter is cleared.
    shown = page.locator("#river-rows tr")
    shown.filter(has_text="while-paused").first.click(position={"x": 20, "y": 8})
    page.locator("#river-follow").click()
    expect(shown).to_have_count(1)
    assert "message=" in page.url
    page.screenshot(path=ARTIFACTS / "live-one-message-1280.png")
    page.locator("#river-only").click()
    expect(shown.nth(1)).to_be_visible()

    # The report counts exactly the sent messages.
    navigation.get_by_role("link", name="Reports").click()
    page.get_by_role("button", name="Run a report").first.click()
    dialog = page.locator("dialog#start-report")
    dialog.locator("select[name=traffic-hours]").select_option("1")
    dialog.locator("input[name=traffic-topic]").fill(TOPIC)
    dialog.get_by_role("button", name="Run", exact=True).click()
    number = page.locator("#report-messages")
    expect(number).to_have_attribute(
        "data-value", str(len(sent) + 1), timeout=REPORT_SECONDS * 1_000
    )
    expect(number).to_contain_text(str(len(sent) + 1))
    page.wait_for_load_state("networkidle")
    page.screenshot(path=ARTIFACTS / "report-done-1280.png", full_page=True)


def test_the_demo_fills_an_empty_overview(appliance: Appliance, context: BrowserContext) -> None:
    page = context.new_page()
    sign_in(page, appliance.url)
    button = page.get_by_role("button", name=re.compile("demo", re.IGNORECASE)).first
    if button.count() == 0:
        pytest.fail("The overview offers no demo traffic.")
    button.click()
    page.goto(f"{appliance.url}/live/")

    expect(page.locator("#river-rows tr").first).to_be_visible(timeout=60_000)
    page.screenshot(path=ARTIFACTS / "live-demo-1280.png")


def test_a_user_goes_from_demo_traffic_over_reports_and_sql_to_a_schedule(
    appliance: Appliance, context: BrowserContext
) -> None:
    page = context.new_page()
    sign_in(page, appliance.url)

    # Traffic, and the lake's tables that fill by themselves.
    start = page.get_by_role("button", name="Start demo traffic").first
    if start.count():
        start.click()
    page.goto(f"{appliance.url}/live/")
    expect(page.locator("#river-rows tr").first).to_be_visible(timeout=60_000)
    page.goto(f"{appliance.url}/lake/")
    minutes = page.locator("tr", has_text="gold.traffic_minute").locator("td.num").first
    expect(minutes).to_have_text(re.compile(r"[1-9]"), timeout=REPORT_SECONDS * 1_000)

    # Three reports, each with its summary, made by Spark from the lake.
    for report in ("sizes", "keys", "traffic"):
        page.goto(f"{appliance.url}/reports/")
        page.get_by_role("button", name="Run a report").first.click()
        dialog = page.locator("dialog#start-report")
        dialog.locator("select[name=report]").select_option(report)
        dialog.locator(f"select[name={report}-hours]").select_option("1")
        dialog.get_by_role("button", name="Run", exact=True).click()
        expect(page.locator("#report-finding")).to_be_visible(timeout=REPORT_SECONDS * 1_000)
        expect(page.locator("#report-engine")).to_contain_text(
            "Computed by Spark from the lake table"
        )
    page.wait_for_load_state("networkidle")
    page.screenshot(path=ARTIFACTS / "report-from-lake-1280.png", full_page=True)
    with page.expect_download() as picture:
        page.get_by_role("link", name="PNG").click()
    assert picture.value.path().read_bytes().startswith(b"\x89PNG")

    # From a number to its messages, and to one of them.
    page.locator("a.report-behind").first.click()
    page.wait_for_url(re.compile(r"/messages/"))
    message = page.locator("main table a[href*='/messages/']").first
    message.click()
    expect(page.get_by_text("UNIQ_KEY").first).to_be_visible()

    # The same by SQL; saved, and scheduled for each hour.
    page.goto(f"{appliance.url}/sql/")
    names = ", ".join(f"'{topic}'" for topic in DEMO_TOPICS)
    page.locator("#sql-text").fill(
        "SELECT topic, sum(messages) AS sent FROM gold.traffic_minute "
        f"WHERE topic IN ({names}) GROUP BY topic ORDER BY topic"
    )
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator("#sql-result tbody tr")).to_have_count(len(DEMO_TOPICS), timeout=60_000)
    expect(page.locator("#sql-result")).to_contain_text(DEMO_TOPICS[0])
    page.locator(".sql-save summary").click()
    page.fill("#sql-name", "what the demo sent")
    page.get_by_role("button", name="Save this query").click()
    page.get_by_role("link", name="Schedule what the demo sent").click()
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#report-next li")).to_have_count(5)
    page.screenshot(path=ARTIFACTS / "query-schedule-1280.png", full_page=True)
