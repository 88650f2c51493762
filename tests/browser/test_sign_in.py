"""The sign-in page in a browser: while it waits, when it rejects, with a known browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import ARTIFACTS
from tests.support.appliance import PASSWORD
from tests.support.web_process import WebProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = pytest.mark.browser

# The overview needs a broker.
PAGE = "/accounts/sign-in/?next=/accounts/password/"
FAILURES_MAX = 5


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebProcess]:
    process = WebProcess(tmp_path_factory.mktemp("web"))
    process.start()
    yield process
    process.stop()


def fill(page: Page, web: WebProcess, password: str) -> None:
    page.goto(f"{web.url}{PAGE}")
    page.fill("input[name=username]", "admin")
    page.fill("input[name=password]", password)


def sign_in(page: Page, web: WebProcess, password: str) -> str:
    """Try a password; return the page's message, empty when it opens."""
    fill(page, web, password)
    with page.expect_navigation():
        page.click("button.button--primary")
    alert = page.locator("[role=alert]")
    return alert.inner_text() if alert.count() else ""


def picture(page: Page, name: str) -> None:
    ARTIFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTIFACTS / f"sign-in-{name}.png")


def test_a_waiting_page_shows_it_and_is_sent_once(web: WebProcess, context: BrowserContext) -> None:
    page = context.new_page()
    sent: list[str] = []
    fill(page, web, "wrong")
    page.on("request", lambda request: sent.append(request.method))

    shown, disabled = page.evaluate(
        """() => {
          const button = document.querySelector("button.button--primary");
          button.click();
          button.click();
          return [button.textContent, button.disabled];
        }"""
    )
    page.wait_for_selector("[role=alert]")

    assert (shown, disabled) == ("Signing in…", True)
    assert sent.count("POST") == 1
    assert not page.locator("button.button--primary").is_disabled()


def test_a_lockout_page_offers_help_and_a_known_browser_is_admitted(
    web: WebProcess, browser: Browser, context: BrowserContext
) -> None:
    known = context.new_page()
    assert sign_in(known, web, PASSWORD) == ""
    session = next(one["name"] for one in context.cookies() if "session" in one["name"])
    context.clear_cookies(name=session)
    stranger = browser.new_context(viewport={"width": 390, "height": 844}).new_page()

    wrong = sign_in(stranger, web, "wrong")
    picture(stranger, "wrong")
    for _ in range(FAILURES_MAX):
        sign_in(stranger, web, "wrong")
    locked = sign_in(stranger, web, PASSWORD)
    picture(stranger, "locked")

    assert wrong == "Wrong name or password."
    assert locked.startswith("Too many failed attempts. Wait 15 minutes")
    assert "manage.py unlock_sign_in" in locked
    width = stranger.evaluate("document.documentElement.scrollWidth")
    assert width <= 390
    assert sign_in(known, web, PASSWORD) == ""
    stranger.context.close()
