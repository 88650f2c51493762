"""Rules of layout, each on a page that is rendered without an appliance."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from itertools import product
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pytest
from django.contrib.staticfiles import finders
from django.urls import reverse
from playwright.sync_api import expect, sync_playwright

from console.frame import NAVIGATION_COOKIE
from console.lib.moment import now_ms
from console.observe.flow.drawing import ROW
from console.observe.history.access import history_store
from console.observe.history.metrics import (
    BROKER,
    PUT,
    TOPIC,
    Subject,
)
from console.ui.words import script
from tests.support.chromium import ARGUMENTS
from tests.support.history_points import keep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.test import Client
    from playwright.sync_api import Page, Route

pytestmark = [pytest.mark.browser, pytest.mark.django_db, pytest.mark.usefixtures("collector")]

ORIGIN = "http://console.test"
BROKER_0 = Subject(BROKER, "broker-a", "0")
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
# Collects the charts and the texts that they draw, with their place on the canvas.
WATCH_CHARTS = """
let made;
window.plots = [];
window.drawn = [];
Object.defineProperty(window, "uPlot", {
  configurable: true,
  get: () => made,
  set: (uPlot) => {
    made = new Proxy(uPlot, { construct(target, args) {
      const plot = new target(...args);
      window.plots.push(plot);
      return plot;
    } });
  },
});
const fillText = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...more) {
  const half = this.measureText(text).width / 2;
  window.drawn.push({
    text, canvas: this.canvas.width, align: this.textAlign, y,
    left: this.textAlign === "center" ? x - half : x,
    right: this.textAlign === "center" ? x + half : x,
  });
  return fillText.call(this, text, x, y, ...more);
};
"""
MIDDLES = """
[...document.querySelectorAll(".button-row")].map((row) =>
  [...row.querySelectorAll(".button")].map((each) => {
    const box = each.getBoundingClientRect();
    return (box.top + box.bottom) / 2;
  })).filter((each) => each.length > 1)
"""
LINES = """
(text) => {
  const node = document.querySelector(text).firstChild;
  const range = document.createRange();
  const lines = new Map();
  for (const word of node.data.matchAll(/\\S+/g)) {
    range.setStart(node, word.index);
    range.setEnd(node, word.index + word[0].length);
    const top = Math.round(range.getBoundingClientRect().top);
    lines.set(top, [...(lines.get(top) ?? []), word[0]]);
  }
  return [...lines.values()];
}
"""


def rendered(client: Client, *addresses: str) -> dict[str, bytes]:
    """Return these pages, and the data of their charts, by path."""
    answers = {}
    for address in addresses:
        body = client.get(address).content
        answers[urlsplit(address).path] = body
        for chart in re.findall(r'data-history="([^"]+)"', body.decode()):
            data = client.get(chart.replace("&amp;", "&")).content
            answers[unquote(urlsplit(chart).path)] = data
    return answers


@contextmanager
def opened(
    chromium: str, answers: dict[str, bytes], path: str, width: int, *, scripts: bool = True
) -> Iterator[Page]:
    """Open a rendered page in Chromium. Until it's closed, the test can't use the database."""

    def serve(route: Route) -> None:
        asked = unquote(urlsplit(route.request.url).path)
        if asked in answers:
            kind = "application/json" if answers[asked].startswith(b"{") else "text/html"
            route.fulfill(body=answers[asked], content_type=f"{kind}; charset=utf-8")
        elif asked.startswith("/words/"):
            route.fulfill(body=script("en"), content_type="text/javascript")
        elif asked.startswith("/static/"):
            route.fulfill(path=str(finders.find(asked.removeprefix("/static/"))))
        else:
            route.abort()

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        page = browser.new_page(
            viewport={"width": width, "height": 900}, java_script_enabled=scripts
        )
        # A machine stalls for seconds.
        page.set_default_timeout(120_000)
        page.add_init_script(WATCH_CHARTS)
        page.route(f"{ORIGIN}/**", serve)
        page.goto(f"{ORIGIN}{path}")
        if scripts:
            page.evaluate("document.fonts.ready.then(() => null)")
        yield page
        browser.close()


def page_with(*scripts: str, body: str) -> dict[str, bytes]:
    """Return a page of our styles, some scripts, and this body."""
    loaded = "".join(f'<script src="{each}" defer></script>' for each in scripts)
    head = '<title>x</title><link rel="stylesheet" href="/static/console/app.css">'
    styles = '<link rel="stylesheet" href="/static/reports/reports.css">'
    return {"/": f"<!doctype html><html><head>{head}{styles}{loaded}</head>{body}".encode()}


def topic(name: str) -> Subject:
    return Subject(TOPIC, "broker-a", name)


def time_labels(page: Page) -> list[dict[str, Any]]:
    """Return the labels of the last chart's time axis."""
    page.wait_for_function("window.drawn.length > 0")
    page.evaluate("window.drawn.length = 0; window.plots.at(-1).redraw()")
    page.wait_for_function("window.drawn.length > 0")
    drawn: list[dict[str, Any]] = page.evaluate("window.drawn")
    lowest = max(each["y"] for each in drawn)
    return [each for each in drawn if each["y"] == lowest and each["text"]]


@pytest.mark.parametrize("width", [1280, 390])
def test_buttons_of_a_row_share_their_middle(width, chromium, brokers, actors) -> None:
    answers = rendered(actors.admin, reverse("overview:index"))

    with opened(chromium, answers, "/", width) as page:
        rows = page.evaluate(MIDDLES)

    assert rows
    assert [each for each in rows if width > 390 and max(each) - min(each) > 0.5] == []


@pytest.mark.parametrize("width", [1440, 1000])
def test_the_flow_is_as_high_as_its_rows(width, chromium, brokers, actors) -> None:
    """One broker and three topics leave less than a row of their card empty."""
    names = ("audit", "orders", "telemetry")
    for name in names:
        brokers.add_topic(name)
    keep(history_store(), now_ms() - MINUTE_MS, {(topic(each), PUT): [50] * 6 for each in names})
    answers = rendered(actors.reader, reverse("overview:index"))

    with opened(chromium, answers, "/", width) as page:
        card = page.locator("#flow .card__body").bounding_box()
        flow = page.locator("#flow .flow").bounding_box()

    assert card is not None
    assert flow is not None
    assert flow["height"] >= 3 * ROW
    assert card["height"] - flow["height"] < ROW


@pytest.mark.parametrize("width", [1440, 390])
def test_a_young_line_has_the_width_of_its_tile(width, chromium, brokers, actors) -> None:
    brokers.add_topic("orders")
    rows = {(BROKER_0, PUT): [50] * 18, (topic("orders"), PUT): [50] * 18}
    keep(history_store(), now_ms() // MINUTE_MS * MINUTE_MS - 3 * MINUTE_MS, rows)
    answers = rendered(actors.reader, reverse("overview:index"))

    with opened(chromium, answers, "/", width) as page:
        tile = page.locator(".tile__spark").first.bounding_box()
        line = page.locator(".tile__spark svg").first.bounding_box()
        words = page.locator(".tile .spark").first.get_attribute("title")
        since = page.locator(".tile__since").first.inner_text()

    assert tile is not None
    assert line is not None
    assert line["width"] == pytest.approx(tile["width"], abs=1)
    assert re.fullmatch(r"since \d\d:\d\d", since)
    assert words is not None
    # The script shows the time in the browser's zone in both.
    assert words.startswith(f"{since}: ")


@pytest.mark.parametrize(("minutes", "shown"), [(1, 10), (30, 30)])
def test_a_chart_shows_the_time_there_is(minutes, shown, chromium, brokers, actors) -> None:
    brokers.add_topic("orders")
    begin = now_ms() // 10_000 * 10_000 - minutes * MINUTE_MS
    keep(history_store(), begin, {(topic("orders"), PUT): [50] * 6 * minutes})
    address = reverse("topics:detail", args=["orders"])
    answers = rendered(actors.reader, f"{address}?range=1h")

    with opened(chromium, answers, f"{address}?range=1h", 1280) as page:
        page.wait_for_function("window.plots.length > 0")
        low, high = page.evaluate("[plots[0].scales.x.min, plots[0].scales.x.max]")
        step = page.locator(".chart__step").first.inner_text()

    assert (high - low) / 60 == pytest.approx(shown, abs=1)
    assert "since" in step


def test_a_chart_of_an_old_figure_shows_the_range(chromium, brokers, actors) -> None:
    brokers.add_topic("orders")
    keep(history_store(), now_ms() - HOUR_MS, {(topic("orders"), PUT): [50] * 360})
    address = reverse("topics:detail", args=["orders"])
    answers = rendered(actors.reader, f"{address}?range=1h")

    with opened(chromium, answers, f"{address}?range=1h", 1280) as page:
        page.wait_for_function("window.plots.length > 0")
        low, high = page.evaluate("[plots[0].scales.x.min, plots[0].scales.x.max]")

    assert (high - low) / 60 == pytest.approx(60, abs=1)


@pytest.mark.parametrize("width", [1280, 390])
def test_a_report_s_time_axis_repeats_and_cuts_no_label(width, chromium) -> None:
    scripts = (
        *("/words/en.js", "/static/console/vendor/uplot.min.js", "/static/console/times.js"),
        *("/static/console/app.js", "/static/reports/chart.js"),
    )
    body = '<div class="report-chart" data-report-chart="/chart"></div><p id="report-legend"></p>'
    answers = page_with(*scripts, body=body) | {"/chart": b"{}"}
    wrong = []

    with opened(chromium, answers, "/", width) as page:
        for step, count in product((1, 30, 60, 3_600, 86_400), (2, 7, 200)):
            answers["/chart"] = json.dumps(
                {
                    "times": [1_795_988_790 + at * step for at in range(count)],
                    "series": [{"label": "orders", "values": [*range(count)]}],
                    "step": "a step",
                    "stepSeconds": step,
                    "isReading": False,
                }
            ).encode()
            page.reload()
            labels = time_labels(page)
            texts = [each["text"] for each in labels]
            cut = [each for each in labels if each["left"] < 0 or each["right"] > each["canvas"]]
            if not texts or len(set(texts)) < len(texts) or cut:
                wrong.append((step, count, texts, cut))

    assert not wrong, wrong


def test_no_line_of_a_subtitle_is_a_single_word(chromium) -> None:
    said = "1 h · requested 2 min ago by admin · took 31 s · with a peak memory of about 1.0 GiB"
    body = (
        f'<div class="page-head"><div class="page-head__titles"><p id="lead">{said}</p></div></div>'
    )

    with opened(chromium, page_with(body=body), "/", 1280) as page:
        short = []
        for width in range(260, 700, 10):
            page.set_viewport_size({"width": width, "height": 600})
            lines = page.evaluate(LINES, "#lead")
            if len(lines) > 1 and len(lines[-1]) == 1:
                short.append((width, lines))

    assert short == []


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_a_phone_opens_the_navigation_and_its_sections(scripts, chromium, brokers, actors) -> None:
    """Both the drawer and the sections also open without scripts."""
    answers = rendered(actors.admin, reverse("overview:index"))

    with opened(chromium, answers, "/", 390, scripts=scripts) as page:
        navigation = page.get_by_role("navigation", name="Main")
        lake = navigation.get_by_role("link", name="Lake")
        expect(lake).to_be_hidden()

        page.get_by_role("link", name="Navigation").click()

        expect(lake).to_be_visible()
        navigation.get_by_text("Data", exact=True).click()
        expect(lake).to_be_hidden()
        expect(navigation.get_by_role("link", name="Topics")).to_be_visible()


def test_a_section_collapses_by_key_and_its_cookie_keeps_it(chromium, brokers, actors) -> None:
    answers = rendered(actors.admin, reverse("overview:index"))

    with opened(chromium, answers, "/", 1280) as page:
        head = page.locator('[data-section="data"] > summary')
        lake = page.get_by_role("link", name="Lake")
        head.focus()
        page.keyboard.press("Enter")
        expect(lake).to_be_hidden()
        page.locator('[data-section="messaging"] > summary').click()
        collapsed = cookie(page)
        # The shortcut still opens its page.
        assert page.evaluate("document.querySelector('a[data-key=k]') !== null")
        page.keyboard.press("Shift+Tab")
        head.focus()
        page.keyboard.press("Space")
        expect(lake).to_be_visible()
        after = cookie(page)

    assert (collapsed, after) == ("data.messaging", "messaging")


def cookie(page: Page) -> str:
    return next(
        each["value"] for each in page.context.cookies() if each["name"] == NAVIGATION_COOKIE
    )
