"""Convert Timestamp and Duration from and to milliseconds, the broker's unit of time."""

from __future__ import annotations

from broker_core.grpc_messages.shared import Duration, Timestamp

_MS_PER_S = 1_000
_NS_PER_MS = 1_000_000


def timestamp_of(milliseconds: int) -> Timestamp:
    """Return a Timestamp for milliseconds since the epoch."""
    seconds, rest = divmod(milliseconds, _MS_PER_S)
    return Timestamp(seconds, rest * _NS_PER_MS)


def duration_of(milliseconds: int) -> Duration:
    """Return a Duration; both parts of a negative one are negative, as protobuf requires."""
    sign = -1 if milliseconds < 0 else 1
    seconds, rest = divmod(abs(milliseconds), _MS_PER_S)
    return Duration(sign * seconds, sign * rest * _NS_PER_MS)


def milliseconds_of(time: Timestamp | Duration) -> int:
    """Return a Timestamp or Duration in milliseconds, truncated."""
    nanoseconds = time.seconds * _MS_PER_S * _NS_PER_MS + time.nanos
    if isinstance(time, Timestamp):
        return nanoseconds // _NS_PER_MS
    return nanoseconds // _NS_PER_MS if nanoseconds >= 0 else -(-nanoseconds // _NS_PER_MS)
