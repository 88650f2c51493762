"""Engine: what serves most frames, in Python or compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker_core.http2 import frame_loop
from broker_core.http2.hpack import HeaderDecoder

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.http2.connection import Connection
    from broker_core.http2.hpack import BlockDecoder


class Engine(NamedTuple):
    """The parts with a compiled twin; those of one engine belong together."""

    header_decoder: Callable[[int], BlockDecoder]
    """Makes a connection's decoder; the argument is the largest header list."""
    take_frames: Callable[[Connection, bytes], int]
    """See `frame_loop.take_frames`."""


PYTHON = Engine(HeaderDecoder, frame_loop.take_frames)
