"""The WebSocket route of the Live page, with the one bridge of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.urls import path
from django.utils.module_loading import import_string

from console.tracing.bridge import TraceBridge, WatchLink
from console.tracing.consumers import TraceConsumer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LINK = "console.tracing.link.RemotingWatchLink"
FIND_BROKERS = "console.tracing.link.find_brokers"


def open_link(address: str, on_events: Callable[[bytes], None]) -> WatchLink:
    """Open a link of the kind that the settings name; tests name another."""
    link: WatchLink = import_string(getattr(settings, "TREBUCHET_TRACE_LINK", LINK))(
        address, on_events
    )
    return link


async def find_brokers() -> Mapping[str, str]:
    found: Mapping[str, str] = await import_string(
        getattr(settings, "TREBUCHET_TRACE_BROKERS", FIND_BROKERS)
    )()
    return found


bridge = TraceBridge(find_brokers, open_link)

websocket_urlpatterns = [
    path("live/stream/", TraceConsumer.as_asgi(bridge=bridge)),
]
