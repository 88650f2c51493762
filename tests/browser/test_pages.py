"""Every page: it fits, it is quiet, it asks nobody else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.browser.conftest import ARTIFACTS, GROUP, SCHEMES, TOPIC, WIDTHS, Scheme, World, sign_in

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

pytestmark = [pytest.mark.browser, pytest.mark.interop, pytest.mark.spark]

SIGNED_OUT = ["/accounts/sign-in/"]
PAGES = [
    "/",
    "/live/",
    "/topics/",
    "/topics/?kind=system",
    "/topics/new/",
    f"/topics/t/{TOPIC}/",
    f"/topics/t/{TOPIC}/edit/",
    "/groups/",
    "/groups/new/",
    f"/groups/g/{GROUP}/",
    f"/groups/g/{GROUP}/edit/",
    "/offsets/",
    f"/offsets/?group={GROUP}&topic={TOPIC}",
    "/reports/",
    "RUN",
    "SCHEDULE",
    "/audit/",
    "/accounts/password/",
]
MISSING = "/no-such-page/"


class Listener:
    """What a page does that it should not."""

    def __init__(self, page: Page, url: str) -> None:
        self.problems: list[str] = []
        host = urlsplit(url).netloc

        def check_request(address: str) -> None:
            parts = urlsplit(address)
            if parts.scheme not in ("data", "blob") and parts.netloc != host:
                self.problems.append(f"asks another host: {address}")

        page.on(
            "console",
            lambda message: (
                self.problems.append(f"console {message.type}: {message.text}")
                if message.type in ("error", "warning")
                else None
            ),
        )
        page.on("pageerror", lambda error: self.problems.append(f"script error: {error}"))
        page.on("request", lambda request: check_request(request.url))
        page.on("websocket", lambda socket: check_request(socket.url))
        page.on(
            "response",
            lambda answer: (
                self.problems.append(f"{answer.status} for {answer.url}")
                if answer.status >= 400
                else None
            ),
        )


def look_at(page: Page, url: str, path: str, name: str) -> list[str]:
    """Open a page, keep its picture, return what is wrong with it."""
    listener = Listener(page, url)
    page.goto(f"{url}{path}")
    page.wait_for_load_state("networkidle")
    page.evaluate("document.fonts.ready")
    page.screenshot(path=ARTIFACTS / f"{name}.png", full_page=True)
    problems = list(listener.problems)
    wide, shown = page.evaluate("[document.scrollingElement.scrollWidth, window.innerWidth]")
    if wide > shown:
        problems.append(f"{wide} px wide in a window of {shown} px")
    if page.evaluate("document.documentElement.innerText").strip() == "":
        problems.append("empty")
    return problems


def file_name(path: str, width: int, scheme: str) -> str:
    name = re.sub(r"[^a-zA-Z0-9]+", "-", path).strip("-") or "overview"
    return f"{name}-{width}-{scheme}"


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("path", [*SIGNED_OUT, *PAGES])
def test_a_page_fits_and_keeps_to_itself(
    world: World, pages: dict[tuple[int, Scheme], Page], path: str, width: int, scheme: Scheme
) -> None:
    address = {"RUN": world.run_path, "SCHEDULE": world.schedule_path}.get(path, path)
    url = world.appliance.url
    page = pages[width, scheme]
    if path in SIGNED_OUT:
        page.context.clear_cookies()
    elif not page.context.cookies():
        sign_in(page, url)
    fresh = page.context.new_page()
    try:
        assert look_at(fresh, url, address, file_name(path, width, scheme)) == []
    finally:
        fresh.close()


@pytest.fixture(scope="module")
def pages(
    browser_contexts: dict[tuple[int, Scheme], BrowserContext],
) -> dict[tuple[int, Scheme], Page]:
    return {key: context.new_page() for key, context in browser_contexts.items()}


@pytest.mark.parametrize("width", WIDTHS)
def test_a_page_that_does_not_exist_says_so_in_our_own_words(
    world: World, pages: dict[tuple[int, Scheme], Page], width: int
) -> None:
    url = world.appliance.url
    page = pages[width, "light"]
    if not page.context.cookies():
        sign_in(page, url)
    answer = page.goto(f"{url}{MISSING}")

    assert answer is not None
    assert answer.status == 404
    assert "Trebuchet" in page.title()
    page.screenshot(path=ARTIFACTS / f"missing-{width}.png", full_page=True)
    wide, shown = page.evaluate("[document.scrollingElement.scrollWidth, window.innerWidth]")
    assert wide <= shown


def test_while_the_broker_is_away_every_page_says_so(world: World, context: BrowserContext) -> None:
    """A broker that does not answer is a sentence on the page, never an error of the server."""
    page = context.new_page()
    url = world.appliance.url
    sign_in(page, url)
    world.appliance.pause("broker")
    try:
        for path in ("/", "/topics/", "/groups/", "/offsets/", "/live/"):
            answer = page.goto(f"{url}{path}")
            assert answer is not None
            assert answer.status == 200, path
            assert "Server Error" not in page.content()
        page.goto(f"{url}/topics/")
        page.screenshot(path=ARTIFACTS / "topics-broker-away-1280.png", full_page=True)
    finally:
        world.appliance.resume("broker")
