"""A browser's end of a WebSocket, over ASGI without a network.

`channels.testing` has one too, but its package can't be imported without Daphne.
"""

from __future__ import annotations

import json
from typing import Any

from asgiref.testing import ApplicationCommunicator

WAIT_S = 5


class SocketClient:
    """One socket to a consumer."""

    def __init__(self, application: Any, path: str, **scope: Any) -> None:
        # Any: asgiref's testing module has no types.
        self._app: Any = ApplicationCommunicator(  # type: ignore[no-untyped-call]
            application,
            {"type": "websocket", "path": path, "headers": [], "subprotocols": [], **scope},
        )

    async def connect(self) -> bool:
        """Open the socket; return whether it was accepted."""
        await self._app.send_input({"type": "websocket.connect"})
        answer = await self._app.receive_output(WAIT_S)
        return bool(answer["type"] == "websocket.accept")

    async def send(self, text: str) -> None:
        await self._app.send_input({"type": "websocket.receive", "text": text})

    async def frame(self, kind: str) -> dict[str, Any]:
        """Return the next frame of a kind, and skip others."""
        while True:
            output = await self._app.receive_output(WAIT_S)
            frame: dict[str, Any] = json.loads(output["text"])
            if frame["type"] == kind:
                return frame

    async def closed_with(self) -> int:
        """Return the code with which the server closes."""
        while True:
            output = await self._app.receive_output(WAIT_S)
            if output["type"] == "websocket.close":
                return int(output["code"])

    async def disconnect(self, code: int = 1000) -> None:
        await self._app.send_input({"type": "websocket.disconnect", "code": code})
        await self._app.wait(WAIT_S)
