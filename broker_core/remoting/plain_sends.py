"""PlainSends: who may serve frames of a connection before the dispatcher sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from broker_core.protocol.frame import FrameDecoder
    from broker_core.remoting.dispatch import Dispatcher
    from broker_core.remoting.later import Later


class PlainSends(Protocol):
    """Serves sends that need nothing but to be stored. Event loop only."""

    def serve(
        self,
        decoder: FrameDecoder,
        dispatcher: Dispatcher,
        born_host: bytes,
        room: int,
        requests_max: int,
    ) -> bytes | Later:
        """Take such sends from the decoder's rest, up to the first that is not plain.

        Returns their answers, little more than `room` bytes at most, for `requests_max` requests at
        most; b"" when it took none. Answers that must wait come as one Later, with its `requests`
        and their `frame_bytes`.
        """
        ...
