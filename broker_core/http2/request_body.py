"""Assemble the messages of a request from its DATA frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.errors import CallRefusedError
from broker_core.http2.codes import GrpcStatus
from broker_core.http2.grpc_framing import PREFIX, PREFIX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator


class RequestBody:
    """The request body of one call. Event loop only.

    Attributes:
        held_bytes: bytes held of the incomplete message.
        missing_bytes: bytes still to arrive for it, as far as known; 0 between messages.
    """

    __slots__ = ("_kept", "_message_bytes_max", "_wanted", "held_bytes", "missing_bytes")

    def __init__(self, message_bytes_max: int) -> None:
        self.held_bytes = 0
        self.missing_bytes = 0
        self._message_bytes_max = message_bytes_max
        # One buffer instead of a list of pieces, because a peer may send a byte at a time.
        self._kept = bytearray()
        self._wanted = PREFIX_BYTES

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Add the next piece; yield the messages that it completes.

        Raises:
            CallRefusedError: a message is compressed or too large.
        """
        kept = self._kept
        if kept:
            kept += piece
            if len(kept) < self._wanted:
                self._settle(len(kept))
                return
            data = bytes(kept)
            kept.clear()
        else:
            data = piece
        at, end = 0, len(data)
        while end - at >= PREFIX_BYTES:
            length = self._length(*PREFIX.unpack_from(data, at))
            self._wanted = PREFIX_BYTES + length
            if end - at < self._wanted:
                break
            at += self._wanted
            self._wanted = PREFIX_BYTES
            yield data[at - length : at]
        kept += data[at:]
        self._settle(end - at)

    def _settle(self, held_bytes: int) -> None:
        self.held_bytes = held_bytes
        self.missing_bytes = self._wanted - held_bytes if held_bytes else 0

    def _length(self, compressed: int, length: int) -> int:
        if compressed:
            raise CallRefusedError(
                GrpcStatus.UNIMPLEMENTED,
                "compressed messages are not supported; send them without grpc-encoding",
            )
        if length > self._message_bytes_max:
            raise CallRefusedError(
                GrpcStatus.RESOURCE_EXHAUSTED,
                f"the message has {length} bytes, more than the {self._message_bytes_max} allowed",
            )
        return length


def whole_message(payload: bytes, message_bytes_max: int) -> bytes | None:
    """Return the message if the payload is exactly one message, else None."""
    if len(payload) < PREFIX_BYTES:
        return None
    compressed, length = PREFIX.unpack_from(payload)
    if compressed or length != len(payload) - PREFIX_BYTES or length > message_bytes_max:
        return None
    return payload[PREFIX_BYTES:]
