"""Chromium, and an appliance that has something to show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from playwright.sync_api import sync_playwright

from tests.support import raw_remoting
from tests.support.appliance import PASSWORD, Appliance, Visitor
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, BrowserContext, Page

    from tests.support.java_clients import JavaClients

ARTIFACTS = Path(__file__).resolve().parent.parent / "artifacts"
# A browser at rest talks to its maker's servers; these keep every request one of our pages.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDTHS = (1280, 390)
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
TOPIC = "OrderEvents"
GROUP = "order-service"
COUNT = 120
REPORT_SECONDS = 240


@dataclass(frozen=True, slots=True)
class World:
    """An appliance in use: a topic with messages, a group that has read some, a report."""

    appliance: Appliance
    run_path: str
    schedule_path: str


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """Chromium for one file of tests.

    While it is open playwright's event loop runs in this thread, and no other test's could.
    """
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def appliance(
    chromium: str, java_4: JavaClients, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Appliance]:
    """Run the appliance; what it needs is looked for first, so that it is not started in vain."""
    started = Appliance(tmp_path_factory.mktemp("appliance"))
    started.start()
    yield started
    started.stop()


@pytest.fixture(scope="module")
def world(appliance: Appliance, java_4: JavaClients) -> World:
    raw_remoting.create_topic(appliance.port, TOPIC)
    java_4.send(
        appliance.namesrv, TOPIC, modes="sync", count=COUNT, tags="created,paid", prefix="order"
    )
    java_4.receive(appliance.namesrv, TOPIC, GROUP, count=COUNT, quiet_ms=200)
    java_4.send(appliance.namesrv, TOPIC, modes="batch", count=COUNT, tags="shipped", prefix="late")
    visitor = Visitor(appliance.url)
    visitor.sign_in()
    visitor.post("/reports/start/", report="traffic", **{"traffic-hours": "1"})
    until(
        lambda: 'id="report-messages"' in visitor.read("/reports/runs/1/"),
        "the report to be done",
        seconds=REPORT_SECONDS,
    )
    return World(appliance, run_path="/reports/runs/1/", schedule_path="/reports/schedules/1/")


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    opened = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB")
    opened.set_default_timeout(20_000)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def browser_contexts(browser: Browser) -> Iterator[dict[tuple[int, Scheme], BrowserContext]]:
    """One context a window width and colour scheme; signing in is slow on purpose."""
    opened = {
        (width, scheme): browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            locale="en-GB",
            is_mobile=width < 600,
            has_touch=width < 600,
        )
        for width in WIDTHS
        for scheme in SCHEMES
    }
    for each in opened.values():
        each.set_default_timeout(20_000)
    yield opened
    for each in opened.values():
        each.close()


def sign_in(page: Page, url: str) -> None:
    page.goto(f"{url}/accounts/sign-in/")
    page.fill("input[name=username]", "admin")
    page.fill("input[name=password]", PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{url}/")
