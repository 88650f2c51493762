"""The engine that processes most frames, in Python or compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker_core.http2 import frame_loop
from broker_core.http2.hpack import HeaderDecoder

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.http2.connection import Connection
    from broker_core.http2.hpack import BlockDecoder


class Engine(NamedTuple):
    """The parts that also exist as compiled code; use all of them from the same engine."""

    header_decoder: Callable[[int], BlockDecoder]
    """Create a connection's decoder; the argument is the maximum header list size in bytes."""
    take_frames: Callable[[Connection, bytes], int]
    """See `frame_loop.take_frames`."""


PYTHON = Engine(HeaderDecoder, frame_loop.take_frames)
