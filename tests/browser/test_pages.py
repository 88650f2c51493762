"""Every page: it fits, it is quiet, it asks nobody else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.browser.conftest import ARTIFACTS, GROUP, SCHEMES, TOPIC, WIDTHS, Scheme, World, sign_in

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = [pytest.mark.browser, pytest.mark.interop, pytest.mark.spark]

SIGN_IN = "/accounts/sign-in/"
PAGES = [
    "/",
    "/live/",
    "/topics/",
    "/topics/?kind=system",
    "/topics/new/",
    f"/topics/t/{TOPIC}/",
    f"/topics/t/{TOPIC}/edit/",
    "/brokers/b/broker-a/0/",
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
    if (problem := too_wide(page)) is not None:
        problems.append(problem)
    if page.url != f"{url}{path}":
        problems.append(f"leads to {page.url}")
    return problems


def too_wide(page: Page) -> str | None:
    wide, shown = page.evaluate("[document.scrollingElement.scrollWidth, window.innerWidth]")
    return f"{wide} px wide in a window of {shown} px" if wide > shown else None


def file_name(path: str, width: int, scheme: str) -> str:
    name = re.sub(r"[^a-zA-Z0-9]+", "-", path).strip("-") or "overview"
    return f"{name}-{width}-{scheme}"


@pytest.fixture(scope="module")
def signed_in(
    world: World, browser_contexts: dict[tuple[int, Scheme], BrowserContext]
) -> dict[tuple[int, Scheme], BrowserContext]:
    for context in browser_contexts.values():
        page = context.new_page()
        sign_in(page, world.appliance.url)
        page.close()
    return browser_contexts


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("path", PAGES)
def test_a_page_fits_and_keeps_to_itself(
    world: World,
    signed_in: dict[tuple[int, Scheme], BrowserContext],
    path: str,
    width: int,
    scheme: Scheme,
) -> None:
    address = {"RUN": world.run_path, "SCHEDULE": world.schedule_path}.get(path, path)
    page = signed_in[width, scheme].new_page()
    try:
        problems = look_at(page, world.appliance.url, address, file_name(path, width, scheme))
    finally:
        page.close()

    assert problems == []


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_of_signing_in_fits_and_keeps_to_itself(
    world: World, browser: Browser, width: int
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    try:
        name = file_name(SIGN_IN, width, "light")
        problems = look_at(page, world.appliance.url, SIGN_IN, name)
    finally:
        page.close()

    assert problems == []


@pytest.mark.parametrize("width", WIDTHS)
def test_a_page_that_does_not_exist_says_so_in_our_own_words(
    world: World, signed_in: dict[tuple[int, Scheme], BrowserContext], width: int
) -> None:
    page = signed_in[width, "light"].new_page()
    try:
        answer = page.goto(f"{world.appliance.url}{MISSING}")

        assert answer is not None
        assert answer.status == 404
        assert "Trebuchet" in page.title()
        page.screenshot(path=ARTIFACTS / f"missing-{width}.png", full_page=True)
        assert too_wide(page) is None
    finally:
        page.close()


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
            # 503 when there is nothing else to show; in our own frame either way.
            assert answer.status in (200, 503), path
            assert "Trebuchet" in page.title()
            assert page.get_by_role("navigation", name="Main").is_visible()
        page.goto(f"{url}/topics/")
        page.screenshot(path=ARTIFACTS / "topics-broker-away-1280.png", full_page=True)
    finally:
        world.appliance.resume("broker")
