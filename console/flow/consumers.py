"""The WebSocket of the overview: sends the flow as HTML whenever it has changed; takes nothing."""

from __future__ import annotations

import asyncio

from channels.generic.websocket import AsyncWebsocketConsumer

from console.accounts.sessions import is_signed_in
from console.flow.hub import FlowHub, Viewer
from console.tracing.consumers import (
    CLOSE_SIGNED_OUT,
    CLOSE_TOO_BIG,
    CLOSE_TOO_MANY,
    SESSION_CHECK_S,
)
from console.ui.languages import language_of


class FlowConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]  # channels has no types
    """One socket of one signed-in user."""

    channel_layer_alias = "none"

    def __init__(self, hub: FlowHub, session_check_s: float = SESSION_CHECK_S) -> None:
        super().__init__()
        self._hub = hub
        self._session_check_s = session_check_s
        self._viewer: Viewer | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def connect(self) -> None:
        user = self.scope.get("user")
        if user is None or not user.is_authenticated:
            # Closed before `accept`, the socket is answered with 403.
            await self.close()
            return
        await self.accept()
        viewer = Viewer(user.pk, language_of(self.scope))
        if not self._hub.join(viewer):
            await self.close(code=CLOSE_TOO_MANY)
            return
        self._viewer = viewer
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._pump(viewer), name="flow pump"),
            loop.create_task(self._check_session(), name="flow session check"),
        ]

    async def disconnect(self, code: int) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._viewer is not None:
            await self._hub.leave(self._viewer)
            self._viewer = None

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        await self.close(code=CLOSE_TOO_BIG)

    async def _pump(self, viewer: Viewer) -> None:
        while True:
            await self.send(text_data=await viewer.next())

    async def _check_session(self) -> None:
        while True:
            await asyncio.sleep(self._session_check_s)
            if not await is_signed_in(getattr(self.scope.get("session"), "session_key", None)):
                await self.close(code=CLOSE_SIGNED_OUT)
                return
