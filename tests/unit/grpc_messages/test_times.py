from __future__ import annotations

import pytest
from google.protobuf import duration_pb2, timestamp_pb2
from hypothesis import given, strategies as st

from broker_core.grpc_messages.shared import Duration, Timestamp
from broker_core.grpc_messages.times import duration_of, milliseconds_of, timestamp_of

DAY_MS = 86_400_000
# Google's Timestamp ends with the year 9999.
times = st.integers(-60_000_000 * 1_000, 250_000_000_000 * 1_000)


@given(times)
def test_a_time_makes_a_round_trip_through_protobuf(milliseconds: int) -> None:
    other = timestamp_pb2.Timestamp()
    other.FromMilliseconds(milliseconds)

    ours = timestamp_of(milliseconds)

    assert ours == Timestamp(other.seconds, other.nanos)
    assert milliseconds_of(ours) == milliseconds


@given(st.integers(-1_000 * DAY_MS, 1_000 * DAY_MS))
def test_a_duration_makes_a_round_trip_through_protobuf(milliseconds: int) -> None:
    other = duration_pb2.Duration()
    other.FromMilliseconds(milliseconds)

    ours = duration_of(milliseconds)

    assert ours == Duration(other.seconds, other.nanos)
    assert milliseconds_of(ours) == milliseconds


@pytest.mark.parametrize(
    ("time", "milliseconds"),
    [
        (Timestamp(1, 999_999), 1_000),
        (Timestamp(-1, 999_999_999), -1),
        (Duration(0, -999_999), 0),
        (Duration(-1, -1_500_000), -1_001),
        (Duration(1 << 62, 0), (1 << 62) * 1_000),
    ],
)
def test_finer_digits_are_cut_off(time: Timestamp | Duration, milliseconds: int) -> None:
    assert milliseconds_of(time) == milliseconds
