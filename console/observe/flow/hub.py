"""FlowHub: renders the flow once for all viewers, and sends it to each."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from asgiref.sync import sync_to_async
from django.utils import translation

from broker_core.isolation import isolated

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY_S = 5.0
VIEWERS_PER_USER_MAX = 20


class Viewer:
    """One open overview. Event loop only. A slow viewer skips to the newest flow."""

    def __init__(self, user_id: object, language: str) -> None:
        self.user_id = user_id
        self.language = language
        self._html = ""
        self._news = asyncio.Event()

    def offer(self, html: str) -> None:
        if html != self._html:
            self._html = html
            self._news.set()

    async def next(self) -> str:
        await self._news.wait()
        self._news.clear()
        return self._html


class FlowHub:
    """Renders while there are viewers, once per language. Event loop only."""

    def __init__(self, render: Callable[[], str], every_s: float = EVERY_S) -> None:
        self._render = render
        self._every_s = every_s
        self._viewers: set[Viewer] = set()
        self._task: asyncio.Task[None] | None = None

    def join(self, viewer: Viewer) -> bool:
        """Add a viewer; return False if its person has too many."""
        if Counter(each.user_id for each in self._viewers)[viewer.user_id] >= VIEWERS_PER_USER_MAX:
            return False
        self._viewers.add(viewer)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="flow hub")
        return True

    async def leave(self, viewer: Viewer) -> None:
        """Remove a viewer; the last one ends the rendering."""
        self._viewers.discard(viewer)
        if not self._viewers and self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            for language in {viewer.language for viewer in self._viewers}:
                with isolated("drawing the flow", language):
                    html = await sync_to_async(self._in, thread_sensitive=False)(language)
                    for viewer in self._viewers:
                        if viewer.language == language:
                            viewer.offer(html)
            await asyncio.sleep(self._every_s)

    def _in(self, language: str) -> str:
        with translation.override(language):
            return self._render()
