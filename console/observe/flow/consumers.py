"""The WebSocket of the overview: sends the flow as HTML whenever it changes; ignores input."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from channels.generic.websocket import AsyncWebsocketConsumer

from console.messages.tracing.consumers import (
    CLOSE_SIGNED_OUT,
    CLOSE_TOO_BIG,
    CLOSE_TOO_MANY,
    closing_on_failure,
)
from console.observe.flow.hub import FlowHub, Viewer
from console.ui.languages import language_of

if TYPE_CHECKING:
    from console.accounts.session_watch import SessionWatch


class FlowConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]  # channels has no types
    """One socket of one signed-in user."""

    channel_layer_alias = "none"

    def __init__(self, hub: FlowHub, sessions: SessionWatch) -> None:
        super().__init__()
        self._hub = hub
        self._sessions = sessions
        self._viewer: Viewer | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def connect(self) -> None:
        user = self.scope.get("user")
        if user is None or not user.is_authenticated:
            # Closing before `accept` answers the request with 403.
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
            loop.create_task(closing_on_failure(self, work), name=f"flow {name}")
            for name, work in (
                ("pump", self._pump(viewer)),
                ("session", self._follow_session(user.pk)),
            )
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

    async def _follow_session(self, account_id: int) -> None:
        key = getattr(self.scope.get("session"), "session_key", None)
        async for _rights in self._sessions.rights(key, account_id):
            pass
        await self.close(code=CLOSE_SIGNED_OUT)
