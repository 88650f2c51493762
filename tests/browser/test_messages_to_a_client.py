"""What an operator sends, commits and replays from the pages, a Java consumer receives."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from broker_core.protocol.codes import RequestCode
from tests.browser.conftest import ARTIFACTS, sign_in
from tests.support import raw_remoting
from tests.support.live_group import SECONDS, Follower
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until
from tests.support.web_process import WebProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import BrowserContext, Page

    from tests.support.broker_process import BrokerProcess
    from tests.support.java_clients import JavaClients

pytestmark = [pytest.mark.browser, pytest.mark.interop]

TOPIC, GROUP = "Handed", "handed-group"
REPLAY_MS = 60_000


@pytest.fixture
def web(chromium: str, broker_process: BrokerProcess, tmp_path: Path) -> Iterator[WebProcess]:
    """Run the console's web server before a broker of its own."""
    (tmp_path / "console").mkdir()
    started = WebProcess(tmp_path / "console", TREBUCHET_NAMESRV=broker_process.namesrv)
    started.start()
    yield started
    started.stop()


def fill(page: Page, web: WebProcess, keys: str, **more: str) -> None:
    """Fill in the form for sending, with keys that tell the message."""
    page.goto(f"{web.url}/messages/send/?topic={TOPIC}")
    page.get_by_label("Body", exact=True).fill('{"order": 12345678901234567890}')
    page.get_by_label("Keys", exact=True).fill(keys)
    for label, value in more.items():
        page.get_by_label(label.replace("_", " "), exact=True).fill(value)


def send(page: Page) -> None:
    """Send what the form says, and wait for the page that says so."""
    with page.expect_navigation():
        page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_role("heading", name=f"Last sent to {TOPIC}")).to_be_visible()
    expect(page.locator(".field__error")).to_have_count(0)


def received(follower: Follower, key: str, times: int = 1) -> None:
    until(lambda: follower.keys.count(key) >= times, f"{key} at the Java consumer", seconds=SECONDS)


def give_up(client: RawClient, offset: int) -> None:
    """Have the broker put a message among the dead letters, as a consumer's last retry does."""
    fields = {
        "offset": str(offset),
        "group": GROUP,
        "originTopic": TOPIC,
        "delayLevel": "-1",
        "maxReconsumeTimes": "0",
    }
    assert client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields).code == 0


def test_what_is_sent_committed_and_replayed_from_the_pages_reaches_a_consumer(
    context: BrowserContext, web: WebProcess, broker_process: BrokerProcess, java: JavaClients
) -> None:
    raw_remoting.create_topic(broker_process.port, TOPIC, queues=1)
    start = ("LiveConsumer", broker_process.namesrv, TOPIC, GROUP)
    with (
        RawClient(broker_process.port) as client,
        Follower(java.start(*start, stdin=subprocess.PIPE)) as follower,
    ):
        page = context.new_page()
        sign_in(page, web.url)

        # Sent, several at a time.
        fill(page, web, "several", Tag="paid", How_many="3")
        send(page)
        received(follower, "several", 3)

        # A transaction is seen by nobody before it is committed.
        # The form remembers what was sent last.
        fill(page, web, "half", How_many="1")
        page.get_by_label("As a transaction").check()
        send(page)
        fill(page, web, "behind")
        send(page)
        received(follower, "behind")
        assert "half" not in follower.keys
        page.screenshot(path=ARTIFACTS / "half-1280.png", full_page=True)
        page.get_by_role("button", name="Commit", exact=True).click()
        received(follower, "half")

        # One that the group gave up comes again, once; nothing is open then.
        record = raw_remoting.read_queue(broker_process.port, TOPIC, 0)[0]
        sent = client.ask(
            raw_remoting.SEND_MESSAGE,
            raw_remoting.send_fields(TOPIC, queue_id=0, properties="KEYS\x01dead\x02TAGS\x01A"),
            record.body,
        )
        received(follower, "dead")
        give_up(client, int(sent.fields["msgId"][-16:], 16))
        page.goto(f"{web.url}/dead-letters/")
        page.get_by_role("link", name=GROUP, exact=True).click()
        page.get_by_role("button", name="Replay…").click()
        page.get_by_label(re.compile("retry topic")).check()
        page.get_by_role("button", name="Preview").click()
        page.screenshot(path=ARTIFACTS / "replay-preview-1280.png", full_page=True)
        danger = page.locator("form.danger")
        expect(danger).to_contain_text("Messages sent")
        if danger.locator("#danger-name").count():
            danger.locator("#danger-name").fill(GROUP)
        danger.locator("button[type=submit]").click()
        received(follower, "dead", 2)
        expect(page.locator("#replay")).to_contain_text("1 of 1", timeout=REPLAY_MS)
        page.screenshot(path=ARTIFACTS / "replayed-1280.png", full_page=True)
        page.goto(f"{web.url}/dead-letters/g/{GROUP}/")
        expect(page.get_by_role("heading", name="Nothing is open")).to_be_visible()
        assert follower.keys.count("dead") == 2
