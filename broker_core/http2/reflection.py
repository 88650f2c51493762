"""gRPC reflection, which lets tools list the services of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.grpc_messages import reflection
from broker_core.http2.methods import Bidi

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from broker_core.http2.call import Call
    from broker_core.http2.methods import Method


def reflection_methods(paths: Iterable[str]) -> dict[str, Method]:
    """Return the reflection methods of both versions for the served method `paths`."""
    named = {path.split("/")[1] for path in paths} | set(reflection.SERVICES)
    services = sorted(named)
    method = Bidi(lambda call: _Questions(call, services))
    return {f"/{service}/{reflection.METHOD}": method for service in reflection.SERVICES}


class _Questions:
    """Answers the questions of one call in order."""

    __slots__ = ("_call", "_services")

    def __init__(self, call: Call, services: Sequence[str]) -> None:
        self._call = call
        self._services = services

    def message_received(self, message: bytes) -> None:
        self._call.send(reflection.answer(message, self._services))

    def half_closed(self) -> None:
        self._call.end()
