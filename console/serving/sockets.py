"""The response to a WebSocket at an unknown URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from console.serving.body_limit import Receive, Scope, Send


async def not_found(scope: Scope, receive: Receive, send: Send) -> None:
    """Return 404, as for pages."""
    await send({"type": "websocket.http.response.start", "status": 404, "headers": []})
    await send({"type": "websocket.http.response.body", "body": b"No WebSocket lives here.\n"})
