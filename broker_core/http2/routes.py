"""Methods in the form in which connections look them up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from broker_core.http2.methods import Bidi, Method, ServerStreaming, Unary

if TYPE_CHECKING:
    from collections.abc import Callable

UNARY, SERVER_STREAMING, BIDI = range(3)
_KINDS = {Unary: UNARY, ServerStreaming: SERVER_STREAMING, Bidi: BIDI}


class Route(NamedTuple):
    """A path and the method that serves it."""

    path: str
    kind: int
    handler: Callable[..., Any]


def route(path: str, method: Method) -> Route:
    """Return the route of a method."""
    return Route(path, _KINDS[type(method)], method.handler)
