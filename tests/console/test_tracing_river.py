"""The Live page in Chromium, with events from the test instead of a socket."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.staticfiles import finders
from django.urls import reverse
from playwright.sync_api import expect, sync_playwright

from console.messages.tracing.bridge import Viewer
from tests.console.tracing_fakes import an_event

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page, Route

    from console.gateway.fakes.broker import FakeBroker
    from tests.console.conftest import Actors

ORIGIN = "http://console.test"
ADDRESS = "?group=fraud-check"
# A busy machine makes tasks long; a page that draws each of 10,000 rows takes far longer.
LONG_TASK_MS_MAX = 10_000
SOCKET = """
  window.sent = [];
  window.WebSocket = class {
    static OPEN = 1;
    constructor() { this.readyState = 1; window.socket = this; setTimeout(() => this.onopen()); }
    send(text) { window.sent.push(JSON.parse(text)); }
  };
"""


class River:
    """The page, and messages as from the console."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.rows = page.locator("#river-rows tr")

    def sent(self) -> dict[str, Any]:
        text: dict[str, Any] = self.page.evaluate("sent.at(-1)")
        return text

    def until_sent(self, condition: str) -> dict[str, Any]:
        self.page.wait_for_function(f"(said => said && ({condition}))(sent.at(-1))")
        return self.sent()

    def feed(self, *events: dict[str, Any], round_: int | None = None, dropped: int = 0) -> None:
        frame: dict[str, Any] = {
            "type": "events",
            "round": self.sent()["round"] if round_ is None else round_,
            "events": events,
            "seen": len(events),
            "dropped": dropped,
            "brokerDropped": 0,
            "lost": {},
            "waiting": 0,
            "upTo": len(events),
        }
        self.say(frame)

    def say(self, frame: dict[str, Any]) -> None:
        self.page.evaluate("text => socket.onmessage({ data: text })", json.dumps(frame))

    def say_broker(self, state: str) -> None:
        broker = {"name": "broker-a", "address": "10.0.0.1:10911", "state": state, "message": ""}
        self.say({"type": "status", "problem": "", "brokers": [broker]})


@pytest.fixture(scope="module", autouse=True)
def browser(chromium: str) -> Iterator[Browser]:
    """Chromium for this whole file; its loop runs in this thread, next to Django."""
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        started = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        yield started
        started.close()


@pytest.fixture
def river(actors: Actors, brokers: FakeBroker, browser: Browser) -> Iterator[River]:
    path = reverse("tracing:river")
    html = actors.reader.get(path + ADDRESS).content.decode()
    scripts = {
        found: actors.reader.get(found).content
        for found in re.findall(r'src="(/[^"]*)"', html)
        if not found.startswith("/static/")
    }

    def serve(route: Route) -> None:
        request = route.request.url.removeprefix(ORIGIN)
        if request == path + ADDRESS:
            route.fulfill(body=html, content_type="text/html")
        elif request in scripts:
            route.fulfill(body=scripts[request], content_type="text/javascript")
        elif request.startswith("/static/") and (
            file := finders.find(request[8:].partition("?")[0])
        ):
            route.fulfill(path=str(file))
        else:
            offered = {"topics": ["orders", "payments"], "groups": ["billing"]}
            route.fulfill(body=json.dumps(offered), content_type="application/json")

    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.route("**/*", serve)
    page.add_init_script(SOCKET)
    page.goto(ORIGIN + path + ADDRESS)
    made = River(page)
    made.until_sent("said.type === 'filter'")
    yield made
    page.close()


def an_event_of(number: int, **more: Any) -> dict[str, Any]:
    return {
        **an_event(
            queueOffset=str(number),
            uniqKey=f"U{number}",
            messageId=f"U{number}",
            group="fraud-check",
            client="10.0.0.5:44112",
            latencyUs=3200,
            brokerName="broker-a",
        ),
        **more,
    }


def test_the_filter_in_the_address_is_used_and_rows_survive_a_narrower_one(
    river: River,
) -> None:
    request = river.sent()
    river.feed(an_event_of(1), an_event_of(2, topic="payments"))
    expect(river.rows).to_have_count(2)
    expect(river.page.locator("#river-line")).to_have_value("group:fraud-check")

    river.page.fill("#river-line", "group:fraud-check topic:o?d*s latency:>2ms sample:1/10")
    report = river.until_sent("said.topic === 'o?d*s'")
    expect(river.rows).to_have_count(1)
    river.feed(an_event_of(3), an_event_of(4, topic="payments"), round_=request["round"])
    expect(river.rows).to_have_count(2)

    assert (request["group"], report["group"]) == ("fraud-check", "fraud-check")
    assert (report["minLatencyMs"], report["sample"]) == (2, 10)
    expect(river.page.locator("#river-sample")).to_have_text("1/10")
    assert "group=fraud-check" in river.page.url
    river.page.get_by_role("button", name="Clear").click()
    river.feed(an_event_of(5), round_=report["round"])
    expect(river.rows).to_have_count(0)


def test_a_word_is_completed_and_a_wrong_one_is_named(river: River) -> None:
    line = river.page.locator("#river-line")
    line.fill("")
    line.type("to")
    line.press("ArrowDown")
    line.press("Enter")
    line.type("pay")
    expect(river.page.locator("#river-offers li")).to_have_text(["paymentstopic"])
    line.press("ArrowDown")
    line.press("Tab")
    river.until_sent("said.topic === 'payments'")

    line.type("total:1s took:del")
    expect(river.page.locator("#river-offers li")).to_contain_text(["delivered>"])
    line.press("ArrowDown")
    line.press("Tab")
    line.type("5ms,flushed>800us ")
    report = river.until_sent("said.minLatencyUs?.flushed")
    assert report["minLatencyUs"] == {"delivered": 5000, "flushed": 800}
    assert report["minTotalMs"] == 1000
    assert "&total=1000&took=delivered%3E5ms%2Cflushed%3E800us" in river.page.url
    line.fill("topic:payments ")
    river.until_sent("!said.minTotalMs")

    line.press("End")
    line.type("ra")
    expect(river.page.locator("#river-offers li")).to_contain_text(["maximum events per second"])
    line.press("ArrowDown")
    line.press("Tab")
    line.type("<=050/s ")
    assert river.until_sent("said.rate")["rate"] == 50
    assert river.page.url.endswith("?topic=payments&rate=50")
    line.fill("topic:payments rate:0 ")
    river.until_sent("!said.rate")
    expect(river.page.locator("#river-problems")).to_contain_text(
        "Enter the rate as events per second"
    )
    line.fill("topic:payments ")
    line.press("End")
    line.type("colour:red")

    expect(river.page.locator("#river-problems")).to_contain_text("Unknown field colour.")
    assert river.page.url.endswith("?topic=payments")


def test_a_message_is_one_row_with_a_dot_per_stage(river: River) -> None:
    stages = [("delivered", "billing"), ("acknowledged", "billing"), ("delivered", "fraud-check")]
    river.page.fill("#river-line", "")
    river.until_sent("!said.group")
    river.feed(an_event_of(1, group=None))
    row = river.rows.first
    expect(row.locator(".river__dot[data-state]")).to_have_count(1)
    river.feed(*(an_event_of(1, stage=stage, group=group) for stage, group in stages))
    retry = {"topic": "%RETRY%billing", "queueOffset": "0", "reconsumeTimes": 3}
    river.feed(an_event_of(1, stage="retried", group="billing", reconsumeMax=16, **retry))
    refusal = {"code": 17, "codeName": "TOPIC_NOT_EXIST", "remark": "no such topic"}
    river.feed(an_event(stage="refused", topic="nothing", queueOffset=None, **refusal))
    river.feed(an_event_of(1, stage="teleported"))

    expect(river.rows).to_have_count(2)
    expect(row.locator(".river__ratio")).to_have_text(["2/2", "1/2"])
    expect(row.locator(".river__stages .chip")).to_have_text(["retry 3/16", "teleported"])
    expect(river.rows.nth(1)).to_contain_text("no such topic")
    expect(row.get_by_title("Message history")).to_have_attribute(
        "href", "/messages/family/broker-a/0/1/orders/"
    )


def test_one_message_is_followed_from_now_on_and_no_column_is_cut(river: River) -> None:
    river.feed(
        an_event_of(6),
        an_event_of(7),
        an_event(stage="acknowledged", acknowledgedFrom="5", queueOffset="9", group="fraud-check")
        | {"brokerName": "broker-a"},
        an_event(stage="acknowledged", acknowledgedFrom="8", queueOffset="9", group="fraud-check"),
        an_event_of(0, topic="%RETRY%fraud-check", uniqKey="U7", messageId="U7"),
    )
    expect(river.rows).to_have_count(3)
    expect(river.rows.nth(0).locator(".river__dot[data-state]")).to_have_count(2)
    client = river.rows.nth(0).locator(".river__client")
    expect(client).to_have_attribute("title", "fraud-check 10.0.0.5:44112")
    expect(client.locator(".river__group")).to_be_visible()
    assert client.evaluate("cell => cell.scrollWidth <= cell.clientWidth")
    river.page.set_viewport_size({"width": 1440, "height": 800})
    expect(client.locator(".river__address")).to_be_visible()
    assert client.evaluate("cell => cell.scrollWidth <= cell.clientWidth")
    river.page.set_viewport_size({"width": 1280, "height": 800})
    river.rows.nth(1).click(position={"x": 20, "y": 8})
    details = river.page.locator("#river-details").bounding_box()
    latency = river.rows.nth(1).locator(".river__latency").bounding_box()

    river.page.get_by_role("button", name="Only this message").click()

    expect(river.rows).to_have_count(1)
    assert river.until_sent("said.message")["message"]["uniqKey"] == "U7"
    assert details
    assert latency
    assert latency["x"] + latency["width"] <= details["x"]


def test_a_brushed_moment_is_frozen_and_a_search_looks_within_it(river: River) -> None:
    now_ms = river.page.evaluate("Date.now()")
    for number in range(3):
        river.feed(an_event_of(number, timeMs=str(now_ms - 20_000 * number), keys=f"K-{number}"))
    expect(river.rows).to_have_count(3)

    river.page.fill("#river-search", "k-1")
    expect(river.rows).to_have_count(1)
    river.page.fill("#river-search", "")
    box = river.page.locator("#river-strip").bounding_box()
    assert box
    river.page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 20)
    river.page.mouse.down()
    river.page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 20)
    river.page.mouse.up()
    expect(river.rows).to_have_count(1)
    river.feed(an_event_of(9, timeMs=str(now_ms)))
    expect(river.rows).to_contain_text("K-1")

    river.page.keyboard.press("Escape")
    expect(river.rows).to_have_count(4)


def test_a_line_marks_missing_events(river: River) -> None:
    river.say({"type": "viewer", "token": "first"})
    river.say_broker("watching")
    river.feed(an_event_of(1))
    river.feed(dropped=1_200)
    river.feed(an_event_of(2), dropped=1_234)
    river.say_broker("away")
    river.say_broker("watching")
    river.page.evaluate("socket.onclose({ code: 1006 })")
    request = river.until_sent("said.type === 'resume_viewer'")
    # The console has restarted, or the page was disconnected for too long.
    river.say({"type": "viewer", "token": "second"})
    river.until_sent("said.type === 'filter'")
    river.feed(an_event_of(3))

    expect(river.rows).to_have_count(6)
    texts = river.rows.all_inner_texts()
    assert request["token"] == "first"
    time = r"\d\d:\d\d:\d\d\.\d{3}"
    assert re.search(rf"1.234 events aren't shown because.* · {time} . {time}", texts[1])
    for gap in (1, 3, 4):
        kept = river.rows.nth(gap).get_by_role("link", name="From the flight recorders")
        address = reverse("tracing:recorded") + "?ask=all&minutes=2&group=fraud-check"
        expect(kept).to_have_attribute("href", address)
    assert "broker-a wasn't traced from" in texts[3]
    assert "No connection from" in texts[4]


def test_a_page_that_reconnects_in_time_has_no_gap(river: River) -> None:
    river.say({"type": "viewer", "token": "first"})
    round_ = river.sent()["round"]
    river.feed(an_event_of(1), an_event_of(2))
    river.page.evaluate("socket.onclose({ code: 1006 })")

    request = river.until_sent("said.type === 'resume_viewer'")
    river.say({"type": "viewer", "token": "first"})
    river.feed(an_event_of(3), round_=round_)

    expect(river.rows).to_have_count(3)
    assert request["upTo"] == 2
    assert river.sent()["type"] == "resume_viewer"


def saved(river: River, form: str, path: Path) -> Path:
    """Save the page's events; return the file."""
    with river.page.expect_download() as download:
        river.page.evaluate(f"document.querySelector('[data-save={form}]').click()")
    download.value.save_as(path / form)
    return path / form


def spans_in(file: Path) -> list[dict[str, Any]]:
    spans = json.loads(file.read_text())["resourceSpans"][0]["scopeSpans"][0]["spans"]
    return sorted(spans, key=lambda span: (span["name"], span["traceId"]))


def test_a_recording_can_be_saved_replayed_and_exported_like_live_data(
    river: River, tmp_path: Path
) -> None:
    own = "0A01020300002A9F18B4AAC257A10001"
    trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    river.feed(
        an_event_of(1, uniqKey=own, messageId=own),
        an_event_of(2, traceparent=f"00-{trace}-{parent}-01"),
    )
    river.feed(an_event_of(1, uniqKey=own, messageId=own, stage="delivered"))
    lines = saved(river, "lines", tmp_path)
    live = spans_in(saved(river, "otlp", tmp_path))
    noted = sorted(json.loads(each)["stage"] for each in lines.read_text().splitlines())
    with lines.open("a") as file:
        file.write("no event\n")

    river.page.get_by_label("Recording", exact=True).click()
    river.page.select_option("#river-speed", "0")
    river.page.set_input_files("#river-recording", lines)

    expect(river.page.locator(".river__gap")).to_have_count(2)
    expect(river.rows).to_have_count(4)
    expect(river.page.locator("#river-problems")).to_contain_text(
        "1 line of the file isn't an event"
    )
    assert noted == ["delivered", "stored", "stored"]
    (tmp_path / "played").mkdir()
    played = spans_in(saved(river, "otlp", tmp_path / "played"))
    known = ("traceId", "name", "kind", "startTimeUnixNano", "endTimeUnixNano", "attributes")
    assert [[span[name] for name in known] for span in played] == [
        [span[name] for name in known] for span in live
    ]
    for spans in (live, played):
        mine = [each for each in spans if each["traceId"] == own.lower()]
        by_name = {each["name"]: each for each in mine}
        assert by_name.keys() == {"create orders", "receive orders"}
        created = by_name["create orders"]
        assert by_name["receive orders"]["parentSpanId"] == created["spanId"]
        [continued] = [each for each in spans if each["traceId"] == trace]
        assert (continued["name"], continued["parentSpanId"]) == ("create orders", parent)


def test_a_recording_names_the_message_kind_if_a_stage_reports_it(
    river: River, tmp_path: Path
) -> None:
    river.feed(
        an_event_of(1),
        an_event_of(2, stage="deferred", delayLevel=3, group=None),
        an_event_of(3, stage="withheld"),
        an_event_of(4, stage="deferred", delayLevel=3, group="billing"),
    )
    river.feed(an_event_of(2), an_event_of(3))

    spans = spans_in(saved(river, "otlp", tmp_path))

    kinds = [
        (span["name"].split()[0], attribute["value"]["stringValue"])
        for span in spans
        for attribute in span["attributes"]
        if attribute["key"] == "messaging.rocketmq.message.type"
    ]
    assert sorted(kinds) == [
        ("create", "delay"),
        ("create", "transaction"),
        ("deferred", "delay"),
        ("withheld", "transaction"),
    ]


def test_a_burst_of_10_000_messages_is_shown_or_counted_and_the_page_stays_responsive(
    river: River,
) -> None:
    sent, viewer = 10_000, Viewer("somebody")
    viewer.round = river.sent()["round"]
    long_tasks = """
      window.longest = 0;
      new PerformanceObserver((list) => {
        for (const { duration } of list.getEntries()) longest = Math.max(longest, duration);
      }).observe({ type: "longtask" });
    """
    river.page.evaluate(long_tasks)

    for number in range(sent):
        viewer.offer(an_event_of(number))
        if number % 1_000 == 999:
            river.say(json.loads(viewer.take()[-1]))
    while (frame := json.loads(viewer.take()[-1]))["events"]:
        river.say(frame)
    river.page.get_by_role("button", name="Pause").click()

    shown = river.page.evaluate("LiveRows.all().length")
    dropped = int(river.page.locator("#river-dropped").inner_text().replace("\u202f", ""))
    assert dropped > 0
    expect(river.page.locator("#river-share")).to_have_text(f"{100 * dropped / sent:.0f} %")
    assert shown + dropped == sent
    expect(river.page.locator("#river-seen")).to_have_text("10\u202f000")
    assert river.rows.count() <= 300
    assert river.page.evaluate("longest") < LONG_TASK_MS_MAX


def test_a_filters_matches_among_current_messages_are_previewed(
    river: River,
) -> None:
    river.page.fill("#river-line", "")
    request = river.until_sent("!said.group")
    river.feed(*(an_event_of(number, tags="paid" if number % 4 else "due") for number in range(8)))
    expect(river.rows).to_have_count(8)
    report = river.page.locator("#river-preview")

    river.page.locator("#river-line").type("tag:due")

    expect(report).to_have_text("2 of the last 8 events here match")
    river.until_sent(f"said.round > {request['round']}")
    river.page.fill("#river-line", "property:colour=red")
    expect(report).to_be_empty()


def test_a_messages_stages_follow_each_other_in_microseconds(river: River) -> None:
    river.feed(
        an_event_of(1, atUs="5000100", stage="stored"),
        an_event_of(1, atUs="5000350", stage="delivered"),
        # From another run of the broker, whose clock restarted.
        an_event_of(1, atUs="77", stage="acknowledged", timeMs="1795000000009"),
    )
    river.rows.first.click(position={"x": 20, "y": 8})

    expect(river.page.locator("#river-details-stages .river__when").nth(1)).to_have_text("+250 µs")
    expect(river.page.locator("#river-details-stages .river__when").nth(2)).to_have_text("+9.0 ms")


@pytest.mark.parametrize(
    ("typed", "is_unfinished"),
    [
        ("t", True),
        ("group:billing topic", True),
        ("err", True),
        ("errors", False),
        ("topic:", False),
        ("k-17", False),
        ("topic ", False),
        ("parcel", False),
        ("", False),
    ],
)
def test_a_word_that_may_become_a_field_hides_nothing_while_it_is_typed(
    river: River, typed: str, is_unfinished: bool
) -> None:
    assert river.page.evaluate("FilterLine.isUnfinished", typed) is is_unfinished


def test_a_row_is_slow_because_of_a_delay_but_not_a_harmless_wait(river: River) -> None:
    river.feed(
        an_event_of(1),
        an_event_of(1, stage="woken", latencyUs=9_000_000),
        an_event_of(1, stage="flushed", latencyUs=500_000),
        an_event_of(2),
        an_event_of(2, stage="delivered", latencyUs=150_000),
    )

    expect(river.rows).to_have_count(2)
    expect(river.rows.nth(1)).to_have_attribute("data-state", "warn")
    expect(river.rows.nth(0)).to_have_attribute("data-state", "")
