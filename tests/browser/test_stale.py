"""Parts that refresh themselves report missing answers: old numbers never look like new ones."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.support.sources import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page, Route

pytestmark = pytest.mark.browser

STATIC = ROOT / "console" / "static" / "console"
ORIGIN = "http://console.test"
WORDS = """
window.gettext = (text) => text;
window.interpolate = (text, values) => values.reduce((all, each) => all.replace("%s", each), text);
"""
PAGE = """<!doctype html><html lang="en"><head><title>x</title>
<script src="/words.js"></script><script src="/vendor/htmx.min.js"></script>
<script src="/times.js"></script><script src="/stale.js"></script></head>
<body><div id="part" hx-get="/part" hx-trigger="every 200ms"><p>1 204 msg</p></div></body></html>"""


class Console:
    """Serves a page whose part is answered when the test triggers it."""

    def __init__(self, page: Page) -> None:
        self.held: list[Route] = []
        self.answer = ""
        page.route(f"{ORIGIN}/**", self._serve)

    def _serve(self, route: Route) -> None:
        path = PurePosixPath(route.request.url.removeprefix(ORIGIN))
        if str(path) == "/":
            route.fulfill(body=PAGE, content_type="text/html")
        elif str(path) == "/words.js":
            route.fulfill(body=WORDS, content_type="text/javascript")
        elif str(path) != "/part":
            route.fulfill(path=STATIC / path.relative_to("/"))
        elif self.answer == "gone":
            route.abort()
        elif self.answer:
            route.fulfill(body=self.answer, content_type="text/html")
        else:
            self.held.append(route)

    def answer_all(self, body: str) -> None:
        """Answer pending and later requests."""
        self.answer = body
        for route in self.held:
            route.fulfill(body=body, content_type="text/html")
        self.held.clear()


def test_an_unanswered_part_is_marked_until_it_is_answered(context: BrowserContext) -> None:
    page = context.new_page()
    console = Console(page)
    page.goto(f"{ORIGIN}/")
    note, part = page.locator("#part > .stale-note"), page.locator("#part")

    # The broker hangs: the request waits, and the old numbers stay.
    expect(note).to_contain_text("No response", timeout=60_000)
    expect(part).to_contain_text("1 204 msg")
    expect(part).to_have_attribute("data-stale", "true")

    console.answer_all("<p>1 300 msg</p>")
    expect(part).to_have_text("1 300 msg", timeout=60_000)
    expect(part).not_to_have_attribute("data-stale", "true", timeout=60_000)

    # The console itself is down: the same, at once.
    console.answer = "gone"
    expect(note).to_contain_text("No response", timeout=60_000)
    expect(note).to_have_count(1)
    expect(part).to_contain_text("1 300 msg")
