"""The WebSocket route of the Live page, with this process's bridge."""

from __future__ import annotations

from django.urls import path

from console.gateway.access import gateway
from console.messages.tracing.bridge import TraceBridge
from console.messages.tracing.consumers import TraceConsumer
from console.messages.tracing.sessions import session_watch

bridge = TraceBridge(gateway().cluster, gateway().watch)

websocket_urlpatterns = [
    path("live/stream/", TraceConsumer.as_asgi(bridge=bridge, sessions=session_watch)),
]
