"""Times of messages: Timestamp and Duration as milliseconds, which the broker counts in."""

from __future__ import annotations

from broker_core.grpc_messages.shared import Duration, Timestamp

_MS_PER_S = 1_000
_NS_PER_MS = 1_000_000


def timestamp_of(milliseconds: int) -> Timestamp:
    """Return a time from milliseconds since the epoch."""
    seconds, rest = divmod(milliseconds, _MS_PER_S)
    return Timestamp(seconds, rest * _NS_PER_MS)


def duration_of(milliseconds: int) -> Duration:
    """Return a length of time; of a negative one both parts are negative, as protobuf has it."""
    sign = -1 if milliseconds < 0 else 1
    seconds, rest = divmod(abs(milliseconds), _MS_PER_S)
    return Duration(sign * seconds, sign * rest * _NS_PER_MS)


def milliseconds_of(time: Timestamp | Duration) -> int:
    """Return a time or a length of time in milliseconds; what is finer is cut off."""
    nanoseconds = time.seconds * _MS_PER_S * _NS_PER_MS + time.nanos
    if isinstance(time, Timestamp):
        return nanoseconds // _NS_PER_MS
    return nanoseconds // _NS_PER_MS if nanoseconds >= 0 else -(-nanoseconds // _NS_PER_MS)
