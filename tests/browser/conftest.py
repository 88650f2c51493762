"""Chromium, and an appliance with data to show."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from playwright.sync_api import expect, sync_playwright

from console.lib.moment import now_ms

# Pages that are rendered without an appliance.
from tests.console.conftest import (  # noqa: F401
    actors,
    admin_account,
    brokers,
    collector,
    operator_account,
    quick_passwords,
    reader_account,
)
from tests.support import raw_remoting
from tests.support.addresses import KEYS
from tests.support.appliance import Appliance, Visitor
from tests.support.chromium import ARGUMENTS
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, BrowserContext

# A machine stalls for seconds, and a wait ends as soon as its condition holds.
expect.set_options(timeout=60_000)

ARTIFACTS = Path(__file__).resolve().parent.parent / "artifacts"
WIDTHS = (1280, 390)
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
TOPIC = "OrderEvents"
GROUP = "order-service"
DEAD = f"%DLQ%{GROUP}"
COUNT = 120
REPORT_SECONDS = 240
REPORT_POLL_S = 1.0
RUN_PATH = "/reports/runs/1/"
UPDATE_CONSUMER_OFFSET = 15
HEART_BEAT = 34
PUT_KV_CONFIG = 100
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200


@dataclass(frozen=True, slots=True)
class World:
    """An appliance in use, and the keys for its pages, by parameter name."""

    appliance: Appliance
    keys: dict[str, int | str]


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """Chromium for one file of tests.

    While it's open, Playwright's event loop runs in this thread, which prevents other loops.
    """
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def appliance(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    """Run the appliance; check for Chromium first, to avoid a useless start."""
    started = Appliance(tmp_path_factory.mktemp("appliance"))
    started.start()
    yield started
    started.stop()


@pytest.fixture(scope="module")
def world(appliance: Appliance) -> World:
    """Create a topic with messages, a group that has read some, alerts; start a report."""
    traffic(appliance.port)
    with RawClient(appliance.namesrv_port) as client:
        order = {"namespace": str(KEYS["namespace"]), "key": TOPIC, "value": "broker-a:4"}
        assert client.ask(PUT_KV_CONFIG, order).code == raw_remoting.SUCCESS
    visitor = Visitor(appliance.url)
    visitor.sign_in()
    visitor.post("/reports/start/", report="traffic", **{"traffic-hours": "1"})
    made = appliance.in_django(
        "from json import dumps; from tests.support import sampled_runs, console_objects; "
        "print(dumps(console_objects.make() | sampled_runs.make()))"
    )
    plan = visitor.read(f"/offsets/preview/?group={GROUP}&topic={TOPIC}&mode=earliest")
    token = re.search(r'name="token" value="([^"]+)"', plan)
    assert token is not None
    visitor.post("/offsets/apply/", token=token[1])
    entry = re.search(r"/offsets/restore/(\d+)/", visitor.read("/audit/"))
    assert entry is not None
    return World(appliance, {**json.loads(made.splitlines()[-1]), "entry": entry[1]})


def member(port: int, client_id: str, group: str, topic: str, tag: str = "*") -> RawClient:
    """Return a client with this ID that reads a tag in a group; its connection stays open."""
    client = RawClient(port)
    subscription = {"topic": topic, "subString": tag, "expressionType": "TAG", "tagsSet": [tag]}
    body = {
        "clientID": client_id,
        "consumerDataSet": [
            {
                "groupName": group,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "subscriptionDataSet": [{**subscription, "codeSet": [], "subVersion": 1}],
            }
        ],
        "producerDataSet": [{"groupName": f"{group}-producers"}],
    }
    client.send_request(HEART_BEAT, body=json.dumps(body).encode())
    # Before the answer it may be notified of a new member: itself.
    while client.read_answer().code != raw_remoting.SUCCESS:
        continue
    return client


def wait_for_report(appliance: Appliance) -> None:
    """Wait for the run that `world` started; poll rarely, to spare the shared machine."""
    visitor = Visitor(appliance.url)
    visitor.sign_in(then=RUN_PATH)
    until(
        lambda: "Cancel this run" not in visitor.read(f"{RUN_PATH}progress/"),
        "the report to be done",
        seconds=REPORT_SECONDS,
        every_s=REPORT_POLL_S,
    )
    assert 'id="report-messages"' in visitor.read(RUN_PATH)


def traffic(port: int) -> None:
    """Send COUNT messages and as many again; a group has read half of them."""
    now = now_ms()
    raw_remoting.create_topic(port, TOPIC)
    raw_remoting.create_topic(port, DEAD, queues=1)
    with RawClient(port) as client:
        for number in range(2 * COUNT):
            tag = ("created", "paid", "shipped")[number % 3]
            properties = f"KEYS\x01order-{number}\x02TAGS\x01{tag}\x02"
            fields = raw_remoting.send_fields(TOPIC, queue_id=number % 4, properties=properties)
            body = b'{"order": %d, "state": "%s"}' % (number, tag.encode())
            client.ask(raw_remoting.SEND_MESSAGE, {**fields, "bornTimestamp": str(now)}, body)
        for number, tag in enumerate(("paid", "paid", "created")):
            properties = f"KEYS\x01dead-{number}\x02TAGS\x01{tag}\x02RETRY_TOPIC\x01{TOPIC}\x02"
            fields = raw_remoting.send_fields(DEAD, properties=properties)
            client.ask(raw_remoting.SEND_MESSAGE, {**fields, "bornTimestamp": str(now)}, b"lost")
        client.ask(
            UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName": "%s"}' % GROUP.encode()
        )
        for queue_id in range(4):
            place = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue_id)}
            client.ask(UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": str(COUNT // 4)})


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    opened = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB")
    opened.set_default_timeout(20_000)
    yield opened
    opened.close()
