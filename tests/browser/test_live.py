"""The live page in Chromium, a real broker and the real console behind it: bursts and crashes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import sign_in
from tests.support.raw_remoting import (
    PULL_MESSAGE,
    PULL_NOT_FOUND,
    SUCCESS,
    RawClient,
    create_topic,
    pull_fields,
)
from tests.support.send_frames import fields_of, send
from tests.support.waiting import until
from tests.support.web_process import WebProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import BrowserContext

    from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.browser

BURST = 10_000
AT_ONCE = 500
PULLED = 32
TOPIC = "Burst"
COMMITS, TAKES_SUBSCRIPTION = 1, 4
SETTLED_SECONDS = 120
POLL_S = 0.25
STAGES = ("stored", "flushed", "delivered", "acknowledged")
# What each stage of the page's table adds up to.
COUNTS = """
  Object.fromEntries([...document.querySelectorAll("#river-stages tr")].map((row) => [
    row.dataset.stage,
    [...row.cells].slice(1).map((cell) => Number(cell.textContent.replace(/\\D/g, ""))),
  ]))
"""


@pytest.fixture
def web(chromium: str, broker_process: BrokerProcess, tmp_path: Path) -> Iterator[WebProcess]:
    """Run the console's web server before a broker of its own."""
    started = WebProcess(tmp_path / "console", TREBUCHET_NAMESRV=broker_process.namesrv)
    (tmp_path / "console").mkdir()
    started.start()
    yield started
    started.stop()


def send_burst(client: RawClient) -> None:
    for begin in range(0, BURST, AT_ONCE):
        frames = (
            send(fields_of(TOPIC, 0, f"UNIQ_KEY\x01U{number}\x02"), b"", number)
            for number in range(begin, begin + AT_ONCE)
        )
        client.send_bytes(b"".join(frames))
        for _ in range(AT_ONCE):
            assert client.read_answer().code == SUCCESS


def consume(client: RawClient) -> None:
    """Read everything, and acknowledge it with the next pull, as clients do."""
    for offset in range(0, BURST + PULLED, PULLED):
        at = str(min(offset, BURST))
        sys_flag = TAKES_SUBSCRIPTION | (COMMITS if offset else 0)
        more = {"sysFlag": str(sys_flag), "commitOffset": at}
        answer = client.ask(PULL_MESSAGE, {**pull_fields(TOPIC, 0, int(at)), **more})
        assert answer.code in {SUCCESS, PULL_NOT_FOUND}, answer.remark


def test_of_a_burst_what_the_page_shows_and_counts_as_dropped_is_what_was_sent_for_each_stage(
    context: BrowserContext, web: WebProcess, broker_process: BrokerProcess
) -> None:
    create_topic(broker_process.port, TOPIC)
    # Three servers and a browser begin at once: a busy machine takes its time.
    context.set_default_timeout(1_000 * SETTLED_SECONDS)
    page = context.new_page()
    sign_in(page, web.url)
    page.goto(f"{web.url}/live/?topic={TOPIC}&stage={','.join(STAGES)}")
    expect(page.locator("#river-state")).to_have_text("Live", timeout=1_000 * SETTLED_SECONDS)
    page.locator("#river-by-stage > summary").click()

    with RawClient(broker_process.port) as client:
        send_burst(client)
        consume(client)

    counts: dict[str, tuple[int, int]] = {}

    def is_settled() -> bool:
        counts.clear()
        counts.update(page.evaluate(COUNTS))
        # Without a stage stands what is dropped and not told apart yet.
        return "" not in counts and sum(map(sum, counts.values())) >= len(STAGES) * BURST

    until(
        is_settled, "the page to show or count everything", seconds=SETTLED_SECONDS, every_s=POLL_S
    )
    assert {stage: came + lost for stage, (came, lost) in counts.items()} == dict.fromkeys(
        STAGES, BURST
    )
    assert sum(came for came, _lost in counts.values()) > 0


def test_a_page_whose_console_is_killed_says_so_and_goes_on_with_the_next(
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
