"""The WebSocket route of the flow, with this process's hub."""

from __future__ import annotations

from django.urls import path

from console.lib.moment import now_ms
from console.messages.tracing.sessions import session_watch
from console.observe.flow.consumers import FlowConsumer
from console.observe.flow.hub import FlowHub
from console.observe.flow.pages import shared_flow

hub = FlowHub(lambda: shared_flow.html(now_ms()))

websocket_urlpatterns = [
    path("overview/flow/", FlowConsumer.as_asgi(hub=hub, sessions=session_watch))
]
