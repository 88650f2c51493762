"""Chromium for tests and the tour, and signing in to the console."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.appliance import PASSWORD

if TYPE_CHECKING:
    from playwright.sync_api import Page, Request

# Keep an idle browser from contacting Google's servers, so that every request comes from our pages.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

QUIET_ROUNDS, ROUND_MS = 3, 40
PAINTED = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


class Requests:
    """The requests of a page that wait for their answers."""

    def __init__(self, page: Page) -> None:
        self._waiting: set[Request] = set()
        self._page = page
        # Methods of built-in types can't be listeners.
        page.on("request", lambda request: self._waiting.add(request))
        page.on("requestfinished", lambda request: self._waiting.discard(request))
        page.on("requestfailed", lambda request: self._waiting.discard(request))

    def settle(self) -> None:
        """Wait until all requests are done and the result is painted."""
        quiet = 0
        while quiet < QUIET_ROUNDS:
            self._page.wait_for_timeout(ROUND_MS)
            quiet = 0 if self._waiting else quiet + 1
        self._page.evaluate(f"document.fonts.ready.then(() => {PAINTED})")


def sign_in(page: Page, url: str) -> None:
    page.goto(f"{url}/accounts/sign-in/")
    page.fill("input[name=username]", "admin")
    page.fill("input[name=password]", PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{url}/")
