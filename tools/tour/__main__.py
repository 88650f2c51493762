"""Take the screenshots for README and docs/tour.md: an appliance, demo traffic, Chromium.

    python -m tools.tour --write docs

The demo runs for some minutes first, so that charts and sparklines have data; everything takes
about ten minutes. Look at each picture before you commit it.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image
from playwright.sync_api import sync_playwright

from broker_core.clock import SystemClock
from console.observe.alerts import fonts
from tests.support import raw_remoting
from tests.support.appliance import Appliance, Visitor
from tests.support.chromium import ARGUMENTS, sign_in
from tests.support.live_group import QUERY_CONSUMER_OFFSET
from tools.tour.pictures import BYTES_MAX, PICTURES, WIDTH, Picture

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

GROUP = "billing"
DEAD = f"%DLQ%{GROUP}"
# Same as in tools/tour/scene.py, which needs Django.
READERS, TOPIC, QUEUE_ID = "demo-consumers", "orders", 2
REASONS = (("payments", "refused", 9), ("payments", "captured", 3), ("orders", "cancelled", 2))
MINUTES = 8.0
DEMO_SECONDS = 600
"""The demo started by the console's button ends automatically."""
COLOURS = 256
SHOWN_MS = 60_000
SETTLED_MS = 1_500
LIVE_MS = 12_000
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200


def main(words: list[str]) -> int:
    """Take the pictures; return 1 if Chromium or a font is missing."""
    parser = argparse.ArgumentParser(prog="python -m tools.tour", description=__doc__)
    parser.add_argument(
        "--write", type=Path, required=True, metavar="DIRECTORY", help="directory of the docs"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=MINUTES,
        help=f"duration of demo traffic before the pictures ({MINUTES:g})",
    )
    parser.add_argument(
        "--only", default="", metavar="NAME", help="take only pictures whose path contains this"
    )
    arguments = parser.parse_args(words)
    if not 0 < arguments.minutes * 60 < DEMO_SECONDS:
        parser.error(f"--minutes must be above 0 and below {DEMO_SECONDS // 60}")
    chosen = [each for each in PICTURES if arguments.only in each.path]
    if not chosen:
        parser.error(f"--only {arguments.only}: no such picture")
    chromium = shutil.which("chromium")
    if chromium is None:
        print("chromium isn't installed; run apt-get install chromium", file=sys.stderr)
        return 1
    if any(each.locale.startswith("zh") for each in chosen) and not has_chinese():
        problem = "no font with Chinese characters is installed"
        advice = f"run apt-get install {fonts.PACKAGE}, or select other pictures with --only"
        print(f"{problem}; {advice}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="trebuchet-tour-") as directory:
        appliance = Appliance(Path(directory))
        try:
            appliance.start()
            addresses = staged(appliance, arguments.minutes)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
                for path, size in take_all(
                    browser, appliance.url, addresses, chosen, arguments.write
                ):
                    print(f"{path}  {size:,} bytes{'' if size <= BYTES_MAX else '  TOO LARGE'}")
                browser.close()
        finally:
            appliance.stop()
    return 0


def has_chinese() -> bool:
    """Whether Chromium has a Chinese font; otherwise a picture shows boxes."""
    if shutil.which("fc-list") is None:
        return False
    found = subprocess.run(["fc-list", ":lang=zh"], capture_output=True, check=True)
    return bool(found.stdout.strip())


def staged(appliance: Appliance, minutes: float) -> dict[str, str]:
    """Start the demo, dead letters and the trace; return the pages' addresses."""
    visitor = Visitor(appliance.url)
    visitor.sign_in()
    visitor.post("/demo/start/")
    # The message history only has microseconds that the broker has recorded.
    visitor.post("/live/level/", level="full", minutes="60")
    time.sleep(minutes * 60 / 2)
    # A mark in the middle of the chart, with a visible effect.
    appliance.in_django("from tools.tour.scene import prepare; prepare()")
    give_up(appliance.port)
    time.sleep(minutes * 60 / 2)
    code = f"from tools.tour.scene import scene; print(scene({GROUP!r}, {read(appliance.port)}))"
    output = appliance.in_django(code).splitlines()[-1]
    addresses: dict[str, str] = json.loads(output)
    return addresses


def read(port: int) -> int:
    """Return the demo group's offset in the queue that the pictures show."""
    place = {"consumerGroup": READERS, "topic": TOPIC, "queueId": str(QUEUE_ID)}
    with raw_remoting.RawClient(port) as client:
        return int(client.ask(QUERY_CONSUMER_OFFSET, place).fields["offset"])


def give_up(port: int) -> None:
    """Create a group's dead letters of several kinds."""
    rng = random.Random(4)
    raw_remoting.create_topic(port, DEAD, queues=1)
    with raw_remoting.RawClient(port) as client:
        client.ask(
            UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName": "%s"}' % GROUP.encode()
        )
        for topic, tag, count in REASONS:
            for _ in range(count):
                order = f"order-{rng.randrange(100_000, 101_000)}"
                properties = {"KEYS": order, "TAGS": tag, "RETRY_TOPIC": topic}
                fields = raw_remoting.send_fields(
                    DEAD,
                    properties="".join(
                        f"{key}\x01{value}\x02" for key, value in properties.items()
                    ),
                )
                fields |= {"bornTimestamp": str(SystemClock().now_ms()), "reconsumeTimes": "16"}
                body = {"order": order, "state": tag, "amount": round(rng.uniform(5, 90), 2)}
                client.ask(raw_remoting.SEND_MESSAGE, fields, json.dumps(body).encode())


def take_all(
    browser: Browser, url: str, addresses: dict[str, str], chosen: list[Picture], directory: Path
) -> Iterator[tuple[Path, int]]:
    """Take each picture; yield its file and size."""
    first = browser.new_context(locale="en-GB")
    sign_in(first.new_page(), url)
    # One session for both languages, which the browser selects.
    state = first.storage_state()
    first.close()
    for picture in chosen:
        context = browser.new_context(
            viewport={"width": WIDTH, "height": picture.height},
            locale=picture.locale,
            timezone_id="UTC",
            reduced_motion="reduce",
            storage_state=state,
        )
        page = context.new_page()
        open_and_wait(page, f"{url}{picture.address.format(**addresses)}", picture)
        file = directory / picture.path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(small(page.screenshot(caret="hide")))
        context.close()
        yield file, file.stat().st_size


def open_and_wait(page: Page, address: str, picture: Picture) -> None:
    """Open a page, and wait until it's settled."""
    answer = page.goto(address)
    assert answer is not None
    assert answer.ok, f"{address} returned {answer.status}"
    page.locator(picture.shows).first.wait_for(timeout=SHOWN_MS)
    page.evaluate("document.fonts.ready")
    # The live page fills while it's open.
    page.wait_for_timeout(LIVE_MS if "/live/" in address else SETTLED_MS)


def small(png: bytes) -> bytes:
    """Return a picture with an optimized palette: a third of the size, no visible change."""
    with Image.open(io.BytesIO(png)) as image:
        reduced = image.convert("RGB").quantize(
            COLOURS, method=Image.Quantize.MEDIANCUT, kmeans=2, dither=Image.Dither.NONE
        )
    written = io.BytesIO()
    reduced.save(written, "PNG", optimize=True)
    return written.getvalue()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
