"""The WebSocket route of the flow, with this process's hub."""

from __future__ import annotations

from django.urls import path

from console.flow.consumers import FlowConsumer
from console.flow.hub import FlowHub
from console.flow.pages import shared_flow
from console.gateway.moment import now_ms
from console.tracing.sessions import session_watch

hub = FlowHub(lambda: shared_flow.html(now_ms()))

websocket_urlpatterns = [
    path("overview/flow/", FlowConsumer.as_asgi(hub=hub, sessions=session_watch))
]
