"""An offset reset from the console's page while a Java consumer is connected, and its undo."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, NamedTuple

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import ARTIFACTS, sign_in
from tests.support import raw_remoting
from tests.support.live_group import QUERY_CONSUMER_OFFSET, SECONDS, Follower
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

TOPIC, GROUP = "Rewound", "rewound-group"
QUEUES = 4
FIRST, MORE = 10, 3
# The page looks for two minutes; a member stands still for ten seconds of them.
WATCHED_MS = 150_000
POLL_S = 0.25


class Told(NamedTuple):
    """What a preview says of a queue."""

    old: int
    new: int
    again: int
    skipped: int


@pytest.fixture
def web(chromium: str, broker_process: BrokerProcess, tmp_path: Path) -> Iterator[WebProcess]:
    """Run the console's web server before a broker of its own."""
    (tmp_path / "console").mkdir()
    started = WebProcess(tmp_path / "console", TREBUCHET_NAMESRV=broker_process.namesrv)
    started.start()
    yield started
    started.stop()


def key_of(queue_id: int, offset: int) -> str:
    return f"q{queue_id}-{offset}"


def send(client: RawClient, low: int, high: int) -> set[str]:
    """Send the messages of these offsets to each queue; return their keys."""
    keys = set()
    for queue_id in range(QUEUES):
        for offset in range(low, high):
            key = key_of(queue_id, offset)
            fields = raw_remoting.send_fields(
                TOPIC, queue_id=queue_id, properties=f"KEYS\x01{key}\x02TAGS\x01A"
            )
            sent = client.ask(raw_remoting.SEND_MESSAGE, fields, b"body")
            assert (sent.code, sent.fields["queueOffset"]) == (0, str(offset))
            keys.add(key)
    return keys


def wait_for_commits(client: RawClient, offset: int) -> None:
    """Wait until the group has stored this offset of every queue."""

    def stored(queue_id: int) -> str | None:
        place = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue_id)}
        return client.ask(QUERY_CONSUMER_OFFSET, place).fields.get("offset")

    until(
        lambda: all(stored(queue_id) == str(offset) for queue_id in range(QUEUES)),
        "the offsets to be stored",
        seconds=SECONDS,
        every_s=POLL_S,
    )


def told(page: Page) -> dict[int, Told]:
    """Return what the preview on a page says, by queue."""
    rows = page.locator("main table tbody tr")
    expect(rows).to_have_count(QUEUES)
    found = {}
    for cells in rows.evaluate_all("rows => rows.map(row => [...row.cells].map(c => c.innerText))"):
        queue, *numbers = cells
        old, new, again, skipped = (int(re.sub(r"\D", "", each)) for each in numbers[:4])
        found[int(queue.rpartition("·")[2])] = Told(old, new, again, skipped)
    return found


def applied(page: Page, follower: Follower) -> int:
    """Carry out the preview on a page; return how much the consumer had received by then."""
    received = len(follower.keys)
    page.get_by_role("button", name="Reset offsets").click()
    expect(page.locator("#following")).to_be_visible()
    return received


def wait_until_followed(page: Page, picture: str) -> None:
    """Watch the page until it says by itself that no member is waited for."""
    chip = page.locator("#following .card__head .chip")
    expect(chip).to_have_attribute("data-state", re.compile("ok|warn"), timeout=WATCHED_MS)
    # A page that a stalled machine has held for two minutes gives up, and says so.
    if "not all" in chip.inner_text():
        page.reload()
    expect(chip).to_have_text(re.compile(r"all have followed|past (its|their) old place"))
    page.screenshot(path=ARTIFACTS / picture, full_page=True)


def test_members_read_again_what_the_preview_says_and_by_undo_what_it_says_then(
    context: BrowserContext, web: WebProcess, broker_process: BrokerProcess, java: JavaClients
) -> None:
    raw_remoting.create_topic(broker_process.port, TOPIC, queues=QUEUES)
    start = ("LiveConsumer", broker_process.namesrv, TOPIC, GROUP)
    with (
        RawClient(broker_process.port) as client,
        Follower(java.start(*start, stdin=subprocess.PIPE)) as follower,
    ):
        first = send(client, 0, FIRST)
        until(lambda: set(follower.keys) >= first, "the messages", seconds=SECONDS)
        wait_for_commits(client, FIRST)

        # Everything again: by time, as any broker can tell its members.
        page = context.new_page()
        sign_in(page, web.url)
        page.goto(f"{web.url}/offsets/?group={GROUP}&topic={TOPIC}")
        expect(page.get_by_text("1 member", exact=True)).to_be_visible()
        page.get_by_label("The earliest retained message").check()
        page.get_by_role("button", name="Preview").click()
        expect(page.get_by_text("The group is consuming")).to_be_visible()
        assert told(page) == {each: Told(FIRST, 0, FIRST, 0) for each in range(QUEUES)}
        received = applied(page, follower)
        until(lambda: set(follower.keys[received:]) >= first, "all again", seconds=SECONDS)
        wait_for_commits(client, FIRST)
        assert set(follower.keys[received:]) == first
        wait_until_followed(page, "offsets-followed-1280.png")

        # They read on, and are then undone from the audit: it says what they read once more.
        more = send(client, FIRST, FIRST + MORE)
        until(lambda: set(follower.keys) >= more, "what came since", seconds=SECONDS)
        wait_for_commits(client, FIRST + MORE)
        page.goto(f"{web.url}/audit/")
        page.locator("tr", has_text="offset.reset").get_by_role("link", name="Undo").click()
        expect(page.get_by_role("heading", name="Undo preview")).to_be_visible()
        assert told(page) == {each: Told(FIRST + MORE, FIRST, MORE, 0) for each in range(QUEUES)}
        received = applied(page, follower)
        until(lambda: set(follower.keys[received:]) >= more, "these again", seconds=SECONDS)
        wait_for_commits(client, FIRST + MORE)
        assert set(follower.keys[received:]) == more
        wait_until_followed(page, "offsets-undone-1280.png")
