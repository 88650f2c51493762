from __future__ import annotations

import pytest

from broker_core.errors import RequestRefusedError
from broker_core.protocol.headers.fields import boolean, int32, int64, text


def test_a_missing_field_is_named() -> None:
    with pytest.raises(RequestRefusedError, match="has no topic") as refusal:
        text({}, "topic")
    assert refusal.value.code == 1
    with pytest.raises(RequestRefusedError, match="has no queueId"):
        int32({}, "queueId")


def test_a_missing_number_with_a_default_is_the_default() -> None:
    assert int32({}, "queueId", -1) == -1
    assert int64({"offset": "5"}, "offset", -1) == 5


@pytest.mark.parametrize("value", ["2147483647", "-2147483648", "+7", "0"])
def test_numbers_in_range_are_read(value: str) -> None:
    assert int32({"n": value}, "n") == int(value)


@pytest.mark.parametrize(
    "value", ["2147483648", "-2147483649", "", " 1", "1_0", "٣", "--1", "1.0", "9" * 10_000, "x"]
)
def test_text_that_java_would_not_read_is_rejected(value: str) -> None:
    with pytest.raises(RequestRefusedError, match="not a number from"):
        int32({"n": value}, "n")


def test_a_number_outside_its_fields_range_is_rejected() -> None:
    assert int32({"perm": "7"}, "perm", low=0, high=7) == 7
    for value in ("-1", "8"):
        with pytest.raises(RequestRefusedError, match="perm is not a number from 0 to 7"):
            int32({"perm": value}, "perm", low=0, high=7)


def test_a_long_has_64_bits() -> None:
    assert int64({"n": str(2**63 - 1)}, "n") == 2**63 - 1
    assert int64({"n": str(-(2**63))}, "n") == -(2**63)
    with pytest.raises(RequestRefusedError):
        int64({"n": str(2**63)}, "n")


@pytest.mark.parametrize(
    ("value", "read"), [("true", True), ("TRUE", True), ("false", False), ("1", False), ("", False)]
)
def test_only_true_is_true(value: str, read: bool) -> None:
    assert boolean({"b": value}, "b") is read
    assert boolean({}, "b", default=True) is True
