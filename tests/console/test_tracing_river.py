"""The Live page in Chromium, with events that a test feeds to it in place of a socket."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.staticfiles import finders
from django.urls import reverse
from playwright.sync_api import expect, sync_playwright

from tests.console.tracing_fakes import an_event

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page, Route

    from console.gateway.fakes.broker import FakeBroker
    from tests.console.conftest import Actors

ORIGIN = "http://console.test"
ADDRESS = "?group=fraud-check"
SOCKET = """
  window.sent = [];
  window.WebSocket = class {
    static OPEN = 1;
    constructor() { this.readyState = 1; window.socket = this; setTimeout(() => this.onopen()); }
    send(text) { window.sent.push(JSON.parse(text)); }
  };
"""


class River:
    """The page, and what the console would say to it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.rows = page.locator("#river-rows tr:visible")

    def sent(self) -> dict[str, Any]:
        said: dict[str, Any] = self.page.evaluate("sent.at(-1)")
        return said

    def until_sent(self, condition: str) -> dict[str, Any]:
        self.page.wait_for_function(f"(said => said && ({condition}))(sent.at(-1))")
        return self.sent()

    def feed(self, *events: dict[str, Any], round_: int | None = None, dropped: int = 0) -> None:
        frame = {
            "type": "events",
            "round": self.sent()["round"] if round_ is None else round_,
            "events": events,
            "seen": len(events),
            "dropped": dropped,
            "brokerDropped": 0,
            "waiting": 0,
        }
        self.say(frame)

    def say(self, frame: dict[str, Any]) -> None:
        self.page.evaluate("text => socket.onmessage({ data: text })", json.dumps(frame))

    def say_broker(self, state: str) -> None:
        broker = {"name": "broker-a", "address": "10.0.0.1:10911", "state": state, "message": ""}
        self.say({"type": "status", "problem": "", "brokers": [broker]})


@pytest.fixture
def river(actors: Actors, brokers: FakeBroker, chromium: str) -> Iterator[River]:
    path = reverse("tracing:river")
    html = actors.reader.get(path + ADDRESS).content.decode()
    scripts = {
        found: actors.reader.get(found).content
        for found in re.findall(r'src="(/[^"]*)"', html)
        if not found.startswith("/static/")
    }

    def serve(route: Route) -> None:
        asked = route.request.url.removeprefix(ORIGIN)
        if asked == path + ADDRESS:
            route.fulfill(body=html, content_type="text/html")
        elif asked in scripts:
            route.fulfill(body=scripts[asked], content_type="text/javascript")
        elif asked.startswith("/static/") and (file := finders.find(asked[8:].partition("?")[0])):
            route.fulfill(path=str(file))
        else:
            route.fulfill(body='{"topics": []}', content_type="application/json")

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        page = started.new_page(viewport={"width": 1280, "height": 800})
        page.route("**/*", serve)
        page.add_init_script(SOCKET)
        page.goto(ORIGIN + path + ADDRESS)
        made = River(page)
        made.until_sent("said.type === 'filter'")
        yield made
        started.close()


def an_event_of(number: int, **more: Any) -> dict[str, Any]:
    return an_event(
        queueOffset=str(number),
        uniqKey=f"U{number}",
        group="fraud-check",
        client="10.0.0.5:44112",
        latencyUs=3200,
        **more,
    )


def test_the_filter_of_the_address_is_asked_for_and_rows_outlive_a_narrower_one(
    river: River,
) -> None:
    asked = river.sent()
    river.feed(an_event_of(1), an_event_of(2, topic="payments"))
    expect(river.rows).to_have_count(2)

    river.page.fill("[name=topic]", "o?d*s")
    said = river.until_sent("said.topic === 'o?d*s'")
    expect(river.rows).to_have_count(1)
    river.feed(an_event_of(3), an_event_of(4, topic="payments"), round_=asked["round"])
    expect(river.rows).to_have_count(2)

    assert (asked["group"], said["group"]) == ("fraud-check", "fraud-check")
    assert "group=fraud-check" in river.page.url
    river.page.get_by_role("button", name="Clear").click()
    river.feed(an_event_of(5), round_=said["round"])
    expect(river.rows).to_have_count(0)


def test_one_message_is_followed_from_what_is_there_on_and_no_column_is_cut(river: River) -> None:
    river.feed(
        an_event_of(6),
        an_event_of(7),
        an_event_of(7, stage="acknowledged"),
        an_event(stage="acknowledged", acknowledgedFrom="5", queueOffset="9", group="fraud-check"),
        an_event(stage="acknowledged", acknowledgedFrom="8", queueOffset="9", group="fraud-check"),
        an_event_of(0, topic="%RETRY%fraud-check") | {"uniqKey": "U7"},
    )
    client = river.rows.first.locator(".river__client")
    assert client.evaluate("cell => cell.scrollWidth <= cell.clientWidth")
    river.rows.nth(1).click()
    details = river.page.locator("#river-details").bounding_box()
    latency = river.rows.nth(1).locator(".river__latency").bounding_box()

    river.page.get_by_role("button", name="Only this message").click()

    expect(river.rows).to_have_count(4)
    assert river.until_sent("said.message")["message"]["uniqKey"] == "U7"
    assert details
    assert latency
    assert latency["x"] + latency["width"] <= details["x"]


def test_a_line_stands_where_events_are_missing(river: River) -> None:
    river.say_broker("watching")
    river.feed(an_event_of(1))
    river.feed(dropped=1_200)
    river.feed(an_event_of(2), dropped=1_234)
    river.say_broker("away")
    river.say_broker("watching")
    river.page.evaluate("socket.onclose({ code: 1006 })")
    river.page.wait_for_function("sent.filter(said => said.type === 'filter').length === 2")
    river.feed(an_event_of(3))

    expect(river.rows).to_have_count(6)
    texts = river.rows.all_inner_texts()
    assert re.search(r"1.234 events are missing here", texts[1])
    assert "broker-a was not watched from" in texts[3]
    assert "No connection from" in texts[4]
