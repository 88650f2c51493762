"""Lifespan: background services that start and stop with the web server."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from console.messages.tracing.bridge import TraceBridge


class Service(Protocol):
    """A service that starts and stops with the server."""

    def start(self) -> None: ...

    async def shutdown(self) -> None: ...


class Lifespan:
    """The ASGI application for the "lifespan" protocol."""

    def __init__(self, make: Callable[[], Service | None]) -> None:
        self._make = make

    async def __call__(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[dict[str, Any]]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        beside: Service | None = None
        while True:
            event = (await receive())["type"]
            if event == "lifespan.startup":
                try:
                    beside = self._make()
                except ImproperlyConfigured as error:
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                if beside is not None:
                    beside.start()
            elif beside is not None:
                await beside.shutdown()
            await send({"type": f"{event}.complete"})
            if event == "lifespan.shutdown":
                return


def export_to_collector(bridge: TraceBridge) -> Service | None:
    """Return the trace export, or None if no collector is configured.

    Raises:
        ImproperlyConfigured: OpenTelemetry's SDK is not installed.
    """
    if not settings.TREBUCHET_OTLP_ENDPOINT:
        return None
    try:
        export = import_module("console.messages.tracing.export")
    except ModuleNotFoundError as error:
        raise ImproperlyConfigured(
            f"TREBUCHET_OTLP_ENDPOINT is set, but {error.name} isn't installed. Run pip install "
            "--require-hashes -r deploy/requirements-otlp.lock, or start with deploy/up."
        ) from error
    collector = export.Collector(
        settings.TREBUCHET_OTLP_ENDPOINT,
        settings.TREBUCHET_OTLP_HEADERS,
        settings.TREBUCHET_OTLP_TOPIC or None,
        settings.TREBUCHET_OTLP_SAMPLE,
    )
    made: Service = export.OtlpExport(bridge, collector)
    return made
