"""The live page in Chromium, with a real broker and console: bursts and crashes."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from console.messages.tracing.bridge import QUEUE_EVENTS_MAX
from tests.support.chromium import sign_in
from tests.support.raw_remoting import (
    PULL_MESSAGE,
    PULL_NOT_FOUND,
    RECORD_HEAD,
    SUCCESS,
    RawClient,
    create_topic,
    pull_fields,
)
from tests.support.send_frames import SEND_BATCH_MESSAGE, batch_item, fields_of, send
from tests.support.waiting import until
from tests.support.web_process import WebProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import BrowserContext, Page

    from tests.support.broker_process import BrokerProcess

logger = logging.getLogger(__name__)

pytestmark = pytest.mark.browser

BURST = 10_000
BURST_MS_MAX = 1_000
BURSTS_MAX = 3
AT_ONCE = 500
PULLED = 32
TOPIC = "Burst"
COMMITS, TAKES_SUBSCRIPTION = 1, 4
SETTLED_SECONDS = 120
POLL_S = 0.25
STAGES = ("stored", "flushed", "delivered", "acknowledged")
# The sums of each stage in the page's table.
COUNTS = """
  Object.fromEntries([...document.querySelectorAll("#river-stages tr")].map((row) => [
    row.dataset.stage,
    [...row.cells].slice(1).map((cell) => Number(cell.textContent.replace(/\\D/g, ""))),
  ]))
"""


@pytest.fixture
def web(chromium: str, broker_process: BrokerProcess, tmp_path: Path) -> Iterator[WebProcess]:
    """Run the console's web server with a separate broker."""
    started = WebProcess(tmp_path / "console", TREBUCHET_NAMESRV=broker_process.namesrv)
    (tmp_path / "console").mkdir()
    started.start()
    yield started
    started.stop()


def send_burst(client: RawClient, first: int) -> None:
    """Send a burst in one write, and read the answers as fast as they arrive."""
    frames = [
        send(fields_of(TOPIC, 0, f"UNIQ_KEY\x01U{number}\x02"), b"", number)
        for number in range(first, first + BURST)
    ]
    offered = threading.Thread(target=client.send_bytes, args=[b"".join(frames)])
    offered.start()
    client.read_successes(BURST)
    offered.join()


def send_batches(client: RawClient) -> None:
    """Send a burst as batches in one write; all messages of a batch are put in one turn."""
    for begin in range(0, BURST, AT_ONCE):
        items = (
            batch_item(b"", b"UNIQ_KEY\x01V%d\x02" % number)
            for number in range(begin, begin + AT_ONCE)
        )
        fields = fields_of(TOPIC, 0, "", is_batch=True)
        client.send_bytes(send(fields, b"".join(items), begin, code=SEND_BATCH_MESSAGE))
    for _ in range(0, BURST, AT_ONCE):
        assert client.read_answer().code == SUCCESS


def pause(page: Page, client: RawClient) -> int:
    """Pause a page; return how many messages were sent until its console noticed."""
    page.locator("#river-pause").click()
    sent = 0

    def is_known() -> bool:
        nonlocal sent
        client.send_bytes(send(fields_of(TOPIC, 0, f"UNIQ_KEY\x01P{sent}\x02"), b"", sent))
        assert client.read_answer().code == SUCCESS
        sent += 1
        return page.locator("#river-waiting-box").is_visible()

    until(is_known, "events to wait for the page", seconds=SETTLED_SECONDS, every_s=POLL_S)
    return sent


def consume(client: RawClient, first: int, end: int) -> int:
    """Read messages, and acknowledge them with the next pull, as clients do.

    Returns the milliseconds in which they were stored, without the last few, by the broker's clock.
    """
    stored_ms = []
    for offset in range(first, end + PULLED, PULLED):
        at = str(min(offset, end))
        sys_flag = TAKES_SUBSCRIPTION | (COMMITS if offset > first else 0)
        more = {"sysFlag": str(sys_flag), "commitOffset": at}
        answer = client.ask(PULL_MESSAGE, {**pull_fields(TOPIC, 0, int(at)), **more})
        assert answer.code in {SUCCESS, PULL_NOT_FOUND}, answer.remark
        if answer.body:
            stored_ms.append(int(RECORD_HEAD.unpack_from(answer.body)[10]))
    return stored_ms[-1] - stored_ms[0]


def came_in(counts: dict[str, tuple[int, int]]) -> int:
    return sum(received for received, _lost in counts.values())


def lost_in(counts: dict[str, tuple[int, int]]) -> int:
    return sum(lost for _came, lost in counts.values())


def counts_of(page: Page, sent: int) -> dict[str, tuple[int, int]]:
    """Wait until a page shows or counts everything that was sent; return that by stage."""
    counts: dict[str, tuple[int, int]] = {}

    def is_settled() -> bool:
        counts.clear()
        counts.update(page.evaluate(COUNTS))
        # Dropped events not yet assigned to a stage have an empty stage.
        return "" not in counts and sum(map(sum, counts.values())) >= len(STAGES) * sent

    until(
        is_settled, "the page to show or count everything", seconds=SETTLED_SECONDS, every_s=POLL_S
    )
    return counts


def bursts_until_one_lasts_less_than_a_second(page: Page, client: RawClient) -> int:
    """Send and consume bursts, all shown or counted; return the number of messages.

    The broker's own timestamps measure the duration. A busy machine has BURSTS_MAX attempts, then
    longer bursts, for which the same must hold.
    """
    for end in range(BURST, BURST * BURSTS_MAX + 1, BURST):
        send_burst(client, end - BURST)
        took_ms = consume(client, end - BURST, end)
        counts_of(page, end)
        logger.info("burst: messages=%d broker_ms=%d", BURST, took_ms)
        if took_ms < BURST_MS_MAX:
            break
    return end


def test_a_bursts_shown_and_dropped_events_add_up_to_the_sent_ones_for_each_stage(
    context: BrowserContext,
    web: WebProcess,
    broker_process: BrokerProcess,
) -> None:
    create_topic(broker_process.port, TOPIC)
    # Three servers and a browser start at once, which takes time on a busy machine.
    context.set_default_timeout(1_000 * SETTLED_SECONDS)
    page = context.new_page()
    sign_in(page, web.url)
    page.goto(f"{web.url}/live/?topic={TOPIC}&stage={','.join(STAGES)}")
    expect(page.locator("#river-state")).to_have_text("Live", timeout=1_000 * SETTLED_SECONDS)
    page.locator("#river-by-stage > summary").click()

    with RawClient(broker_process.port) as client:
        first = bursts_until_one_lasts_less_than_a_second(page, client)
        shown = counts_of(page, first)
        # For a paused page the console keeps QUEUE_EVENTS_MAX events, and drops the others.
        paused_at = first + pause(page, client)
        sent = paused_at + BURST
        send_batches(client)
        consume(client, first, sent)
    certain = len(STAGES) * BURST - QUEUE_EVENTS_MAX
    # A click elsewhere has closed the table.
    page.locator("#river-by-stage > summary").click()
    until(
        lambda: lost_in(page.evaluate(COUNTS)) - lost_in(shown) >= certain,
        "the page to count the dropped events",
        seconds=SETTLED_SECONDS,
        every_s=POLL_S,
    )
    page.locator("#river-pause").click()
    page.locator("#river-by-stage > summary").click()
    counts = counts_of(page, sent)
    logger.info("bursts: %s", counts)

    for settled, count in ((shown, first), (counts, sent)):
        assert {
            stage: received + lost for stage, (received, lost) in settled.items()
        } == dict.fromkeys(STAGES, count)
    assert 0 < came_in(shown) < came_in(counts)
    assert lost_in(counts) - lost_in(shown) >= certain


def test_a_page_reports_a_killed_console_and_continues_with_the_next(
    context: BrowserContext, web: WebProcess, broker_process: BrokerProcess
) -> None:
    create_topic(broker_process.port, TOPIC)
    context.set_default_timeout(1_000 * SETTLED_SECONDS)
    page = context.new_page()
    sign_in(page, web.url)
    page.goto(f"{web.url}/live/?topic={TOPIC}")
    state = page.locator("#river-state")
    expect(state).to_have_text("Live", timeout=1_000 * SETTLED_SECONDS)

    web.kill()
    expect(state).not_to_have_text("Live", timeout=1_000 * SETTLED_SECONDS)
    web.launch()
    expect(state).to_have_text("Live", timeout=1_000 * SETTLED_SECONDS)
    with RawClient(broker_process.port) as client:
        fields = fields_of(TOPIC, 0, "UNIQ_KEY\x01AFTER\x02KEYS\x01after\x02")
        client.send_bytes(send(fields, b"", 1))
        assert client.read_answer().code == SUCCESS

    expect(page.get_by_text("after").first).to_be_visible(timeout=1_000 * SETTLED_SECONDS)
