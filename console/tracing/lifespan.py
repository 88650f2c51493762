"""Lifespan: what runs beside the web server from its start to its end."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from console.tracing.bridge import TraceBridge


class Beside(Protocol):
    """What is started and ended with the server."""

    def start(self) -> None: ...

    async def shutdown(self) -> None: ...


class Lifespan:
    """The ASGI application of the protocol "lifespan"."""

    def __init__(self, make: Callable[[], Beside | None]) -> None:
        self._make = make

    async def __call__(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[dict[str, Any]]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        beside: Beside | None = None
        while True:
            said = (await receive())["type"]
            if said == "lifespan.startup":
                try:
                    beside = self._make()
                except ImproperlyConfigured as error:
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                if beside is not None:
                    beside.start()
            elif beside is not None:
                await beside.shutdown()
            await send({"type": f"{said}.complete"})
            if said == "lifespan.shutdown":
                return


def export_to_collector(bridge: TraceBridge) -> Beside | None:
    """Return the export of traces, None where no collector is named.

    Raises:
        ImproperlyConfigured: OpenTelemetry's SDK is not installed.
    """
    if not settings.TREBUCHET_OTLP_ENDPOINT:
        return None
    try:
        export = import_module("console.tracing.export")
    except ModuleNotFoundError as error:
        raise ImproperlyConfigured(
            f"TREBUCHET_OTLP_ENDPOINT is set, and {error.name} is not installed: "
            "pip install --require-hashes -r deploy/requirements-otlp.lock, or start by deploy/up."
        ) from error
    collector = export.Collector(
        settings.TREBUCHET_OTLP_ENDPOINT,
        settings.TREBUCHET_OTLP_HEADERS,
        settings.TREBUCHET_OTLP_TOPIC or None,
        settings.TREBUCHET_OTLP_SAMPLE,
    )
    made: Beside = export.OtlpExport(bridge, collector)
    return made
