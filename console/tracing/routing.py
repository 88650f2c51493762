"""The WebSocket route of the Live page, with this process's bridge."""

from __future__ import annotations

from django.urls import path

from console.gateway.access import gateway
from console.tracing.bridge import TraceBridge
from console.tracing.consumers import TraceConsumer
from console.tracing.sessions import session_watch

bridge = TraceBridge(gateway().cluster, gateway().watch)

websocket_urlpatterns = [
    path("live/stream/", TraceConsumer.as_asgi(bridge=bridge, sessions=session_watch)),
]
