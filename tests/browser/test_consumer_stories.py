"""Resets, undos, sends, commits and replays on the pages, as a Java consumer experiences them.

The stories share one appliance.
"""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, NamedTuple

import pytest
from playwright.sync_api import expect

from broker_core.protocol.codes import RequestCode
from tests.browser.conftest import ARTIFACTS
from tests.support import raw_remoting
from tests.support.chromium import sign_in
from tests.support.live_group import QUERY_CONSUMER_OFFSET, SECONDS, Follower
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

    from tests.support.appliance import Appliance
    from tests.support.java_clients import JavaClients

pytestmark = [pytest.mark.browser, pytest.mark.interop]

QUEUES = 4
FIRST, MORE = 10, 3
# The page polls for two minutes, and a member pauses for ten seconds of them.
WATCHED_MS = 150_000
REPLAY_MS = 60_000
BIG = "12345678901234567890"
"""Too large for 64 bits, and for a browser's number."""
POLL_S = 0.25


class PreviewRow(NamedTuple):
    """A preview's row for a queue."""

    old: int
    new: int
    again: int
    skipped: int


def names_of(story: str, java: JavaClients) -> tuple[str, str]:
    """Return the topic and the group of a story: each version of the client has its own."""
    topic = f"{story}-{java.version.replace('.', '-')}"
    return topic, f"{topic}-group"


def key_of(queue_id: int, offset: int) -> str:
    return f"q{queue_id}-{offset}"


def send_to_all(client: RawClient, topic: str, low: int, high: int) -> set[str]:
    """Send messages at these offsets to each queue; return their keys."""
    keys = set()
    for queue_id in range(QUEUES):
        for offset in range(low, high):
            key = key_of(queue_id, offset)
            fields = raw_remoting.send_fields(
                topic, queue_id=queue_id, properties=f"KEYS\x01{key}\x02TAGS\x01A"
            )
            sent = client.ask(raw_remoting.SEND_MESSAGE, fields, b"body")
            assert (sent.code, sent.fields["queueOffset"]) == (0, str(offset))
            keys.add(key)
    return keys


def wait_for_commits(client: RawClient, topic: str, group: str, offset: int) -> None:
    """Wait until the group has stored this offset of every queue."""

    def stored(queue_id: int) -> str | None:
        place = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)}
        return client.ask(QUERY_CONSUMER_OFFSET, place).fields.get("offset")

    until(
        lambda: all(stored(queue_id) == str(offset) for queue_id in range(QUEUES)),
        "the offsets to be stored",
        seconds=SECONDS,
        every_s=POLL_S,
    )


def preview_rows(page: Page) -> dict[int, PreviewRow]:
    """Return the rows of a page's preview, by queue."""
    rows = page.locator("main table tbody tr")
    expect(rows).to_have_count(QUEUES)
    found = {}
    for cells in rows.evaluate_all("rows => rows.map(row => [...row.cells].map(c => c.innerText))"):
        queue, *numbers = cells
        old, new, again, skipped = (int(re.sub(r"\D", "", each)) for each in numbers[:4])
        found[int(queue.rpartition("·")[2])] = PreviewRow(old, new, again, skipped)
    return found


def applied(page: Page, follower: Follower) -> int:
    """Apply the preview on a page; return how many messages the consumer had received by then."""
    received = len(follower.keys)
    page.get_by_role("button", name="Reset offsets").click()
    expect(page.locator("#following")).to_be_visible()
    return received


def wait_until_followed(page: Page, picture: str) -> None:
    """Wait until the page reports, without a reload, that all consumers moved."""
    chip = page.locator("#following .card__head .chip")
    expect(chip).to_have_attribute("data-state", re.compile("ok|warn"), timeout=WATCHED_MS)
    # After a two-minute stall of the machine a page gives up, and says so.
    if "haven't" in chip.inner_text():
        page.reload()
    expect(chip).to_have_text(re.compile(r"all consumers moved|past (its|their) old offset"))
    page.screenshot(path=ARTIFACTS / picture, full_page=True)


def test_members_reread_the_previewed_messages_and_undo_restores_them(
    context: BrowserContext, appliance: Appliance, java: JavaClients
) -> None:
    topic, group = names_of("Rewound", java)
    raw_remoting.create_topic(appliance.port, topic, queues=QUEUES)
    start = ("LiveConsumer", appliance.namesrv, topic, group)
    with (
        RawClient(appliance.port) as client,
        Follower(java.start(*start, stdin=subprocess.PIPE)) as follower,
    ):
        first = send_to_all(client, topic, 0, FIRST)
        until(lambda: set(follower.keys) >= first, "the messages", seconds=SECONDS)
        wait_for_commits(client, topic, group, FIRST)

        # Everything again: by time, as any broker can announce to its members.
        page = context.new_page()
        sign_in(page, appliance.url)
        page.goto(f"{appliance.url}/offsets/?group={group}&topic={topic}")
        expect(page.get_by_text("1 consumer", exact=True)).to_be_visible()
        page.get_by_label("Earliest retained message").check()
        page.get_by_role("button", name="Preview").click()
        expect(page.get_by_text("The group is consuming")).to_be_visible()
        assert preview_rows(page) == {
            each: PreviewRow(FIRST, 0, FIRST, 0) for each in range(QUEUES)
        }
        received = applied(page, follower)
        until(
            lambda: set(follower.keys[received:]) >= first,
            "all messages to be redelivered",
            seconds=SECONDS,
        )
        wait_for_commits(client, topic, group, FIRST)
        assert set(follower.keys[received:]) == first
        wait_until_followed(page, "offsets-followed-1280.png")

        # They continue reading, then the undo from the audit log shows how much they read again.
        more = send_to_all(client, topic, FIRST, FIRST + MORE)
        until(lambda: set(follower.keys) >= more, "the later messages", seconds=SECONDS)
        wait_for_commits(client, topic, group, FIRST + MORE)
        page.goto(f"{appliance.url}/audit/")
        resets = page.locator("tr", has_text="offset.reset")
        resets.first.get_by_role("link", name="Undo").click()
        expect(page.get_by_role("heading", name="Preview undo")).to_be_visible()
        assert preview_rows(page) == {
            each: PreviewRow(FIRST + MORE, FIRST, MORE, 0) for each in range(QUEUES)
        }
        received = applied(page, follower)
        until(
            lambda: set(follower.keys[received:]) >= more,
            "these messages to be redelivered",
            seconds=SECONDS,
        )
        wait_for_commits(client, topic, group, FIRST + MORE)
        assert set(follower.keys[received:]) == more
        wait_until_followed(page, "offsets-undone-1280.png")


def fill(page: Page, appliance: Appliance, topic: str, keys: str, **more: str) -> None:
    """Fill in the form for sending, with keys that identify the message."""
    page.goto(f"{appliance.url}/messages/send/?topic={topic}")
    page.get_by_label("Body", exact=True).fill(f'{{"order": {BIG}}}')
    page.get_by_label("Keys", exact=True).fill(keys)
    for label, value in more.items():
        page.get_by_label(label.replace("_", " "), exact=True).fill(value)


def send(page: Page, topic: str) -> None:
    """Submit the form, and wait for the page that confirms it."""
    with page.expect_navigation():
        page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_role("heading", name=f"Last sent to {topic}")).to_be_visible()
    expect(page.locator(".field__error")).to_have_count(0)


def received(follower: Follower, key: str, times: int = 1) -> None:
    until(lambda: follower.keys.count(key) >= times, f"{key} at the Java consumer", seconds=SECONDS)


def is_acknowledged(page: Page, group: str) -> bool:
    page.reload()
    return page.locator("main tr", has_text=group).get_by_text("acknowledged").count() > 0


def give_up(client: RawClient, topic: str, group: str, offset: int) -> None:
    """Turn a message into a dead letter, as a consumer's last retry does."""
    fields = {
        "offset": str(offset),
        "group": group,
        "originTopic": topic,
        "delayLevel": "-1",
        "maxReconsumeTimes": "0",
    }
    assert client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields).code == 0


def test_messages_sent_committed_and_replayed_on_the_pages_reach_a_consumer(
    context: BrowserContext, appliance: Appliance, java: JavaClients
) -> None:
    topic, group = names_of("Handed", java)
    raw_remoting.create_topic(appliance.port, topic, queues=1)
    start = ("LiveConsumer", appliance.namesrv, topic, group)
    with (
        RawClient(appliance.port) as client,
        Follower(java.start(*start, stdin=subprocess.PIPE)) as follower,
    ):
        page = context.new_page()
        sign_in(page, appliance.url)

        # Sent, several at a time.
        fill(page, appliance, topic, "several", Tag="paid", Number_of_messages="3")
        send(page, topic)
        received(follower, "several", 3)

        # They are found by key and by content; each shows its consumers, and numbers as sent.
        for request in (
            f"find/?by=key&topic={topic}&text=several",
            f"?topic={topic}&range=15m&text={BIG}",
        ):
            page.goto(f"{appliance.url}/messages/{request}")
            expect(page.locator("main td a[href*='/messages/m/']")).to_have_count(3)
        page.locator("main td a[href*='/messages/m/']").first.click()
        expect(page.locator("main")).to_contain_text(BIG)
        until(lambda: is_acknowledged(page, group), "the page to say that the group has it")
        page.screenshot(path=ARTIFACTS / "message-acknowledged-1280.png", full_page=True)

        # A transaction is invisible until it's committed. The form remembers the previous message.
        fill(page, appliance, topic, "half", Number_of_messages="1")
        page.get_by_label("Send as a transaction").check()
        send(page, topic)
        fill(page, appliance, topic, "behind")
        send(page, topic)
        received(follower, "behind")
        assert "half" not in follower.keys
        page.screenshot(path=ARTIFACTS / "half-1280.png", full_page=True)
        page.get_by_role("button", name="Commit", exact=True).click()
        received(follower, "half")

        # A dead letter of the group is delivered again, once; no replay is pending then.
        record = raw_remoting.read_queue(appliance.port, topic, 0)[0]
        sent = client.ask(
            raw_remoting.SEND_MESSAGE,
            raw_remoting.send_fields(topic, queue_id=0, properties="KEYS\x01dead\x02TAGS\x01A"),
            record.body,
        )
        received(follower, "dead")
        give_up(client, topic, group, int(sent.fields["msgId"][-16:], 16))
        page.goto(f"{appliance.url}/dead-letters/")
        page.get_by_role("link", name=group, exact=True).click()
        page.get_by_role("button", name="Replay…").click()
        page.get_by_label(re.compile("retry topic")).check()
        page.get_by_role("button", name="Preview").click()
        page.screenshot(path=ARTIFACTS / "replay-preview-1280.png", full_page=True)
        danger = page.locator("form.danger")
        expect(danger).to_contain_text("Messages sent")
        if danger.locator("#danger-name").count():
            danger.locator("#danger-name").fill(group)
        danger.locator("button[type=submit]").click()
        received(follower, "dead", 2)
        expect(page.locator("#replay")).to_contain_text("1 of 1", timeout=REPLAY_MS)
        page.screenshot(path=ARTIFACTS / "replayed-1280.png", full_page=True)
        page.goto(f"{appliance.url}/dead-letters/g/{group}/")
        expect(page.get_by_role("heading", name="No open dead letters")).to_be_visible()
        assert follower.keys.count("dead") == 2
