"""Reflection: the methods by which tools ask what a server serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.grpc_messages import reflection
from broker_core.http2.methods import Bidi

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from broker_core.http2.call import Call
    from broker_core.http2.methods import Method


def reflection_methods(paths: Iterable[str]) -> dict[str, Method]:
    """Return the methods of both versions; `paths` are those of the methods that are served."""
    named = {path.split("/")[1] for path in paths} | set(reflection.SERVICES)
    services = sorted(named)
    method = Bidi(lambda call: _Questions(call, services))
    return {f"/{service}/{reflection.METHOD}": method for service in reflection.SERVICES}


class _Questions:
    """Answers one question after the other."""

    __slots__ = ("_call", "_services")

    def __init__(self, call: Call, services: Sequence[str]) -> None:
        self._call = call
        self._services = services

    def message_received(self, message: bytes) -> None:
        self._call.send(reflection.answer(message, self._services))

    def half_closed(self) -> None:
        self._call.end()
