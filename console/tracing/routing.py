"""The WebSocket route of the Live page, with the one bridge of this process."""

from __future__ import annotations

from django.urls import path

from console.tracing.bridge import TraceBridge
from console.tracing.consumers import TraceConsumer
from console.tracing.link import RemotingWatchLink, find_brokers

bridge = TraceBridge(find_brokers, RemotingWatchLink)

websocket_urlpatterns = [
    path("live/stream/", TraceConsumer.as_asgi(bridge=bridge)),
]
