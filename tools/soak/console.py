"""A user with the console open during a soak: pages now and then, two sockets all the time."""

from __future__ import annotations

import json
import math
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.error import HTTPError

from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from tests.support.appliance import Visitor

if TYPE_CHECKING:
    from tests.support.appliance import Appliance

PAGES = ("/", "/live/", "/topics/", "/groups/", "/reports/", "/reports/health/")
OVERVIEW, LIVE = "/overview/flow/", "/live/stream/"
SAMPLE = 10
"""The live page shows one in this many messages."""
PAGE_SECONDS = 5.0
AGAIN_SECONDS = 1.0
LOOK_SECONDS = 1.0
PAUSE_SECONDS = 100.0
"""At first the live page requests everything and pauses, which fills the buffers of broker and web
process. They would otherwise fill within half an hour, or during some stall.
"""
GRACE_SECONDS = 60.0
"""After a restart a page may report that something is down."""


class Viewers:
    """A signed-in user with the overview and the live page open, who also reads other pages.

    Attributes:
        frames: how much arrived over each socket.
        pages: how often each page was read.
        wrong: pages that failed although nothing had been restarted.
    """

    def __init__(self, appliance: Appliance, pause_seconds: float = PAUSE_SECONDS) -> None:
        self.frames: Counter[str] = Counter()
        self.pages: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._appliance = appliance
        self._pause_seconds = pause_seconds
        self._visitor = Visitor(appliance.url)
        self._over = threading.Event()
        self._excused_until = 0.0
        self._threads = [
            threading.Thread(target=self._read_pages, name="pages", daemon=True),
            *(
                threading.Thread(target=self._watch, args=(path,), name=path, daemon=True)
                for path in (OVERVIEW, LIVE)
            ),
        ]

    def start(self) -> None:
        self._visitor.sign_in()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def excuse(self) -> None:
        """Expect errors for a while because of a restart."""
        self._excused_until = time.monotonic() + GRACE_SECONDS

    def _read_pages(self) -> None:
        number = 0
        while not self._over.wait(PAGE_SECONDS):
            page = PAGES[number % len(PAGES)]
            number += 1
            try:
                self._visitor.read(page)
            except HTTPError as error:
                self._note(f"{page} returned {error.code}")
            except OSError as error:
                self._note(f"{page} didn't respond: {error}")
            else:
                self.pages[page] += 1

    def _watch(self, path: str) -> None:
        url = self._appliance.url.replace("http:", "ws:", 1) + path
        while not self._over.is_set():
            headers = {"Cookie": self._visitor.cookies}
            with (
                suppress(OSError, WebSocketException),
                connect(
                    url,
                    origin=Origin(self._appliance.url),
                    additional_headers=headers,
                    proxy=None,
                ) as socket,
            ):
                if path == LIVE:
                    socket.send(json.dumps({"type": "filter", "sample": 1}))
                    socket.send(json.dumps({"type": "pause"}))
                    self._count_frames(socket, path, self._pause_seconds)
                    socket.send(json.dumps({"type": "filter", "sample": SAMPLE}))
                    socket.send(json.dumps({"type": "resume"}))
                self._count_frames(socket, path)
            self._over.wait(AGAIN_SECONDS)

    def _count_frames(self, socket: ClientConnection, path: str, seconds: float = math.inf) -> None:
        end = time.monotonic() + seconds
        while not self._over.is_set() and time.monotonic() < end:
            with suppress(TimeoutError):
                socket.recv(LOOK_SECONDS)
                self.frames[path] += 1

    def _note(self, text: str) -> None:
        if time.monotonic() > self._excused_until:
            self.wrong.append(text)
