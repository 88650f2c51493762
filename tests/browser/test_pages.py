"""Every page fits, stays still, contacts no other host, and is accessible."""

from __future__ import annotations

import re
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from tests.browser.conftest import (
    ARTIFACTS,
    GROUP,
    SCHEMES,
    TOPIC,
    WIDTHS,
    World,
    member,
    wait_for_report,
)
from tests.browser.page_checks import COLOURS, EVERYTHING, inaccessible, out_of_reach, too_wide
from tests.support.addresses import KEYS, PAGES, path_of
from tests.support.broker_process import BrokerProcess
from tests.support.chromium import PAINTED, Requests, sign_in
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from playwright.sync_api import Browser, BrowserContext, Page, Route

    from tests.browser.conftest import Scheme

pytestmark = [pytest.mark.browser, pytest.mark.spark]

SIGN_IN = "/accounts/sign-in/"
CASES = [(name, query) for name, queries in PAGES.items() for query in queries]
OWN: dict[str, int | str] = {**KEYS, "topic": TOPIC, "group": GROUP}
SHIFT_MAX = 0.02
COUNT_SHIFTS = """
window.layoutShift = 0;
window.shiftedElements = [];
new PerformanceObserver((list) => {
  for (const each of list.getEntries()) {
    if (each.hadRecentInput) continue;
    window.layoutShift += each.value;
    for (const { node } of each.sources) {
      const element = node?.nodeType === Node.TEXT_NODE ? node.parentElement : node;
      if (element) window.shiftedElements.push(element.cloneNode(false).outerHTML);
    }
  }
}).observe({ type: "layout-shift", buffered: true });
"""
MAIN_PAGES = ("/", "/topics/", f"/groups/g/{GROUP}/", f"/messages/?topic={TOPIC}&range=1h")
PAINT_MS_MAX = 1_000
THROTTLE = 4
PAINT_TRIES = 6
HOUR_MS = 3_600_000
# Time for 20 million turns of an empty loop on an idle machine, throttled; a slower machine's
# limits scale with it.
LOOP_MS = 150
LOOP = """
(() => {
  const began = performance.now();
  let sum = 0;
  for (let turn = 0; turn < 2e7; turn += 1) sum = (sum + turn * 7) % 1000003;
  return performance.now() - began + sum * 0;
})()
"""
LARGEST_PAINT = """
new Promise((done) => new PerformanceObserver((list) => done(list.getEntries().at(-1).startTime))
  .observe({ type: "largest-contentful-paint", buffered: true }))
"""
BETWEEN = 1_024
"""A tablet in portrait mode, or half a screen; only width and screenshot are checked."""
MISSING = "/no-such-page/"


class Listener:
    """Unwanted effects of a page."""

    def __init__(self, page: Page, url: str) -> None:
        self.problems: list[str] = []
        self.settle = Requests(page).settle
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


def look_at(page: Page, url: str, path: str, name: str, schemes: Sequence[Scheme]) -> list[str]:
    """Open a page, save its screenshot in each scheme, return the problems."""
    listener = Listener(page, url)
    page.emulate_media(color_scheme=schemes[0])
    page.add_init_script(COUNT_SHIFTS)
    page.goto(f"{url}{path}")
    listener.settle()
    problems = listener.problems
    if (shift := page.evaluate("window.layoutShift")) > SHIFT_MAX:
        moved = page.evaluate("window.shiftedElements.join(' ')")
        problems.append(f"its layout shifts by {shift:.3f}: {moved}")
    if (problem := too_wide(page)) is not None:
        problems.append(problem)
    if page.url != f"{url}{path}":
        problems.append(f"leads to {page.url}")
    for scheme in schemes:
        page.emulate_media(color_scheme=scheme)
        page.screenshot(path=ARTIFACTS / f"{name}-{scheme}.png", full_page=True)
        problems += inaccessible(page, scheme, EVERYTHING if scheme == schemes[0] else COLOURS)
    return problems


def look_between(page: Page, name: str, schemes: Sequence[Scheme]) -> list[str]:
    """Save a page's screenshots at BETWEEN, return its problems there."""
    page.set_viewport_size({"width": BETWEEN, "height": 900})
    page.evaluate(PAINTED)
    for scheme in schemes:
        page.emulate_media(color_scheme=scheme)
        page.screenshot(path=ARTIFACTS / f"{name}-{scheme}.png", full_page=True)
    problem = too_wide(page)
    return [] if problem is None else [problem]


def file_name(path: str, width: int) -> str:
    name = re.sub(r"[^a-zA-Z0-9]+", "-", path).strip("-") or "overview"
    return f"{name}-{width}"


@pytest.fixture(scope="module")
def signed_in(world: World, browser: Browser) -> Iterator[dict[int, BrowserContext]]:
    """One context per window width; signing in is slow on purpose, and done once."""
    first = browser.new_context()
    sign_in(first.new_page(), world.appliance.url)
    session = first.storage_state()
    first.close()
    contexts = {
        width: browser.new_context(
            viewport={"width": width, "height": 900},
            locale="en-GB",
            is_mobile=width < 600,
            has_touch=width < 600,
            storage_state=session,
        )
        for width in WIDTHS
    }
    for each in contexts.values():
        each.set_default_timeout(60_000)
    yield contexts
    for each in contexts.values():
        each.close()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("name", "query"), CASES)
def test_a_page_fits_its_width_is_self_contained_and_accessible(
    world: World, signed_in: dict[int, BrowserContext], name: str, query: str, width: int
) -> None:
    if name == "reports:run":
        wait_for_report(world.appliance)
    keys = OWN | world.keys
    path = path_of(name, query, keys)
    page = signed_in[width].new_page()
    stays = (str(keys["member"]), str(keys["member_group"]), TOPIC)
    # A broker forgets clients after two minutes of silence, and other clients must not interfere.
    is_about_it = name == "clients:disconnect"
    connected = member(world.appliance.port, *stays) if is_about_it else nullcontext()
    with connected, closing(page):
        shown = file_name(re.sub(r"by-link/.*|silence/.*", "silence-link", path), width)
        problems = look_at(page, world.appliance.url, path, shown, SCHEMES)
        if width > BETWEEN:
            between = file_name(shown.removesuffix(f"-{width}"), BETWEEN)
            problems += look_between(page, between, SCHEMES)
            problems += out_of_reach(page)

    assert problems == []


def test_elements_without_keyboard_access_or_visible_focus_are_found(browser: Browser) -> None:
    page = browser.new_page()
    try:
        page.set_content(
            "<a href='#a' style='outline: none'>a</a><div role='button'>b</div><a href='#c'>c</a>"
            "<input id='d'>"
            "<button>e</button>"
        )
        page.evaluate(
            "document.getElementById('d').addEventListener('focusin', (event) => "
            "event.stopPropagation())"
        )

        found = [problem.partition("<")[0].strip() for problem in out_of_reach(page)]
    finally:
        page.close()

    assert found == ["no key leads to", "no key presses", "nothing shows the focus of"]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("run", ["drain_run", "clients_run", "empty_run"])
def test_the_result_of_a_samples_report_fits_and_is_accessible(
    world: World, signed_in: dict[int, BrowserContext], run: str, width: int
) -> None:
    page = signed_in[width].new_page()
    try:
        path = reverse("reports:run", args=[world.keys[run]])
        problems = look_at(page, world.appliance.url, path, f"{run}-{width}", SCHEMES)
        if run != "empty_run":
            # The chart is drawn, with a name for each of its lines.
            expect(page.locator(".report-chart canvas")).to_be_visible()
            assert page.locator("#report-legend span b").count() > 3
    finally:
        page.close()

    assert problems == []


def test_no_page_is_wider_than_a_phone_in_chinese(
    world: World, browser: Browser, signed_in: dict[int, BrowserContext]
) -> None:
    """Only the width is checked, because the rest is the same in every language."""
    context = browser.new_context(
        viewport={"width": 390, "height": 900},
        locale="zh-CN",
        is_mobile=True,
        has_touch=True,
        storage_state=signed_in[390].storage_state(),
    )
    page = context.new_page()
    problems = {}
    try:
        for name, queries in PAGES.items():
            if name == "clients:disconnect":
                # Without a connected client it has the same text as kv-delete.
                continue
            path = path_of(name, queries[0], OWN | world.keys)
            page.goto(f"{world.appliance.url}{path}")
            assert page.locator("html").get_attribute("lang") == "zh-hans"
            if (problem := too_wide(page)) is not None:
                problems[path] = problem
                page.screenshot(path=ARTIFACTS / f"{file_name(path, 390)}-zh.png", full_page=True)
    finally:
        context.close()

    assert problems == {}


@pytest.mark.parametrize("path", MAIN_PAGES)
def test_a_main_page_is_painted_within_a_second_on_a_quarter_of_a_processor(
    world: World, signed_in: dict[int, BrowserContext], path: str
) -> None:
    """The best of some attempts, because other load only adds time."""
    best = float("inf")
    for _ in range(PAINT_TRIES):
        page = signed_in[1280].new_page()
        page.context.new_cdp_session(page).send(
            "Emulation.setCPUThrottlingRate", {"rate": THROTTLE}
        )
        page.goto(f"{world.appliance.url}{path}")
        painted = page.evaluate(LARGEST_PAINT)
        slowness = max(1.0, page.evaluate(LOOP) / LOOP_MS)
        page.close()
        best = min(best, painted / slowness)
        if best <= PAINT_MS_MAX:
            break

    assert best <= PAINT_MS_MAX


@pytest.mark.parametrize("width", WIDTHS)
def test_the_sign_in_page_fits_its_width_and_is_self_contained(
    world: World, browser: Browser, width: int
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    try:
        name = file_name(SIGN_IN, width)
        problems = look_at(page, world.appliance.url, SIGN_IN, name, SCHEMES)
        problems += out_of_reach(page)
    finally:
        page.close()

    assert problems == []


@pytest.mark.parametrize("width", WIDTHS)
def test_a_missing_page_is_explained_in_our_words(
    world: World, signed_in: dict[int, BrowserContext], width: int
) -> None:
    page = signed_in[width].new_page()
    try:
        answer = page.goto(f"{world.appliance.url}{MISSING}")

        assert answer is not None
        assert answer.status == 404
        assert "Trebuchet" in page.title()
        page.screenshot(path=ARTIFACTS / f"missing-{width}.png", full_page=True)
        assert too_wide(page) is None
    finally:
        page.close()


def test_an_arriving_verdict_moves_nothing_outside_its_column(
    world: World, signed_in: dict[int, BrowserContext]
) -> None:
    """The focus stays where it was, and so do expanded sections."""
    page = signed_in[1280].new_page()
    came = '<li class="trouble" data-rule="came">Falling behind</li>'
    first: list[str] = []
    more: list[str] = []

    def with_more(route: Route) -> None:
        """Answer a refresh with the first summary and more issues: figures don't change."""
        if not first:
            first.append(route.fetch().text())
        column = '<div class="board__list">'
        body = first[0].replace(column, column + "".join(more))
        route.fulfill(content_type="text/html", body=body)

    page.route("**/overview/summary/*", with_more)
    try:
        page.goto(f"{world.appliance.url}/")
        page.wait_for_function("document.querySelector('.board__list') !== null")
        fold = f'<details class="board__more"><summary>9 more</summary>{came}</details>'
        held = '<a class="held" href="/topics/">held</a>'
        more[:] = [fold, held]
        page.locator("#issues a.held").focus()
        page.evaluate(COUNT_SHIFTS)
        begun = page.evaluate("window.layoutShift")

        more[:] = [fold, held, *(9 * [came])]
        expect(page.locator("[data-rule=came]")).to_have_count(10)
        page.locator("#issues details").first.evaluate("each => { each.open = true; }")
        more[:] = [fold, held, came]
        expect(page.locator("[data-rule=came]")).to_have_count(2)

        assert page.locator("#issues details").first.evaluate("each => each.open")
        assert page.evaluate("document.activeElement.className") == "held"
        page.evaluate(PAINTED)
        assert page.evaluate("window.layoutShift") - begun <= SHIFT_MAX
    finally:
        page.unroute_all(behavior="ignoreErrors")
        page.close()


def axis_of(points: dict[str, Any]) -> tuple[int, int]:
    """Return where a live chart's axis begins and ends: at the first value, or 10 minutes long."""
    times, lines = points["times"], [*(each["values"] for each in points["lines"])]
    lines += points["earlier"]
    begin, end = times[0], times[-1] + points["stepMs"]
    first = min(
        time for line in lines for time, value in zip(times, line, strict=True) if value is not None
    )
    is_late = first - begin > HOUR_MS / 10
    return (max(begin, min(first, end - 600_000)) if is_late else begin), end


def test_a_click_on_a_chart_point_opens_the_messages_of_its_time(
    world: World, signed_in: dict[int, BrowserContext]
) -> None:
    page = signed_in[1280].new_page()
    try:
        page.goto(f"{world.appliance.url}/messages/?topic={TOPIC}&range=24h")
        messages = page.locator("main td a[href*='/messages/m/'] time")
        stored_ms = int(messages.first.get_attribute("data-moment") or 0)
        page.goto(f"{world.appliance.url}/topics/t/{TOPIC}/?range=1h")
        chart = page.locator("[data-messages]").first
        area = chart.locator(".u-over")
        area.wait_for()
        points = page.request.get(
            f"{world.appliance.url}{chart.get_attribute('data-history')}"
        ).json()
        first, step = points["times"][0], points["stepMs"]
        slot = first + (stored_ms - first) // step * step
        begin, end = axis_of(points)
        box = area.bounding_box()
        assert box is not None
        x = box["width"] * (slot - begin) / (end - begin)

        area.click(position={"x": x, "y": box["height"] / 2})
        page.wait_for_url(f"**/messages/?topic={TOPIC}&from=*")

        request = parse_qs(urlsplit(page.url).query)
        begin, end = int(request["from"][0]), int(request["to"][0])
        # A point is two pixels wide, and the chart may have one more sample than was read here.
        assert abs(begin - slot) <= 3 * step
        assert end - begin == step
        times = [int(each.get_attribute("data-moment") or 0) for each in messages.all()]
        assert all(begin <= each < end for each in times)
        assert stored_ms in times or not begin <= stored_ms < end
    finally:
        page.close()


def test_keys_lead_to_pages_and_rows_and_the_palette_works(
    world: World, signed_in: dict[int, BrowserContext]
) -> None:
    page = signed_in[1280].new_page()
    url = world.appliance.url
    try:
        page.goto(f"{url}/")
        page.keyboard.press("?")
        expect(page.locator("dialog#keys")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.locator("dialog#keys")).to_be_hidden()

        page.keyboard.press("g")
        page.keyboard.press("t")
        page.wait_for_url(f"{url}/topics/")
        page.keyboard.press("/")
        page.keyboard.type(TOPIC)
        expect(page.locator("tbody tr")).to_have_count(1)
        page.wait_for_url("**/topics/?*")
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("j")
        expect(page.locator("tbody tr a:focus")).to_have_text(TOPIC)
        page.keyboard.press("Enter")
        page.wait_for_url(f"{url}/topics/t/{TOPIC}/")

        page.keyboard.press("Control+k")
        page.keyboard.type(f"reset {GROUP}")
        expect(page.locator("#palette-list li").first).to_contain_text(f"Reset offsets of {GROUP}")
        page.keyboard.press("Enter")
        page.wait_for_url(f"{url}/offsets/?group={GROUP}")
    finally:
        page.close()


def test_a_chart_can_be_zoomed_by_dragging_and_saved_as_picture_and_table(
    world: World, signed_in: dict[int, BrowserContext]
) -> None:
    page = signed_in[1280].new_page()
    try:
        page.goto(f"{world.appliance.url}/topics/t/{TOPIC}/?range=1h&earlier=day")
        chart = page.locator("[data-messages]").first
        area = chart.locator(".u-over")
        area.wait_for()
        points = page.request.get(
            f"{world.appliance.url}{chart.get_attribute('data-history')}"
        ).json()
        for button, magic in (("PNG", b"\x89PNG"), ("CSV", b"time_utc")):
            with page.expect_download() as waiting:
                chart.get_by_text(button, exact=True).click()
            assert magic in Path(waiting.value.path()).read_bytes()[:40]

        box = area.bounding_box()
        assert box is not None
        y = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + box["width"] / 4, y)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] / 2, y, steps=4)
        page.mouse.up()
        page.wait_for_url("**from=**")

        request = parse_qs(urlsplit(page.url).query)
        span = int(request["to"][0]) - int(request["from"][0])
        begin, end = axis_of(points)
        assert abs(span - (end - begin) / 4) < 60_000
        assert request["earlier"] == ["day"]
    finally:
        page.close()


def test_every_page_reports_a_broker_outage(world: World, context: BrowserContext) -> None:
    """A broker that doesn't answer is a message on the page, never a server error."""
    page = context.new_page()
    url = world.appliance.url
    sign_in(page, url)
    world.appliance.pause("broker")
    try:
        for path in ("/", "/topics/", "/groups/", "/offsets/", "/live/"):
            answer = page.goto(f"{url}{path}")
            assert answer is not None
            # 503 when there is nothing else to show; in our own layout either way.
            assert answer.status in (200, 503), path
            assert "Trebuchet" in page.title()
            assert page.get_by_role("navigation", name="Main").is_visible()
        page.goto(f"{url}/topics/")
        page.screenshot(path=ARTIFACTS / "topics-broker-away-1280.png", full_page=True)
    finally:
        world.appliance.resume("broker")


def test_a_promotions_confirmation_fits_and_is_accessible(
    world: World, signed_in: dict[int, BrowserContext], tmp_path: Path
) -> None:
    appliance = world.appliance
    slave = BrokerProcess(
        tmp_path,
        namesrvAddr=appliance.namesrv,
        brokerName="broker-a",
        brokerId=1,
        brokerRole="SLAVE",
    )
    slave.start()
    problems: list[str] = []
    path = reverse("brokers:promote", args=["broker-a", 1])
    page = signed_in[1280].new_page()
    try:
        until(lambda: is_shown(page, f"{appliance.url}{path}"), "the slave to be registered")
    finally:
        page.close()
    try:
        for width in WIDTHS:
            page = signed_in[width].new_page()
            with closing(page):
                problems += look_at(page, appliance.url, path, file_name(path, width), SCHEMES)
                problems += out_of_reach(page)
    finally:
        slave.stop()

    assert problems == []


def is_shown(page: Page, address: str) -> bool:
    answer = page.goto(address)
    return answer is not None and answer.status == 200
