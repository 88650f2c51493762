"""Recall handles: encoding, decoding and malformed ones."""

from __future__ import annotations

from base64 import urlsafe_b64encode

import pytest

from broker_core.timers import recall_handle
from broker_core.timers.recall_handle import RecallHandle

GOOD = RecallHandle("T_delay", "broker-a", 1_795_810_389_000, "7F000001")


def encoded(text: bytes) -> str:
    return urlsafe_b64encode(text).decode()


def test_a_handle_of_the_original_can_be_decoded() -> None:
    text = urlsafe_b64encode(b"v1 T_delay broker-a 1795810389000 7F000001").decode()

    assert recall_handle.decode(text) == GOOD
    assert recall_handle.decode(text.rstrip("=")) == GOOD
    assert recall_handle.encode(GOOD) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "%%%",
        "\u00e9",
        "A",
        urlsafe_b64encode(b"\xff\xfe").decode(),
        *(
            urlsafe_b64encode(each).decode()
            for each in (
                b"v2 T broker-a 1 k",
                b"v1 T broker-a 1",
                b"v1 T broker-a 1 ",
            )
        ),
        "A" * 5_000,
        f"{encoded(b'v1 T broker-a 1 k')}\n",
        encoded(b"v1 T broker-a 1 k").replace("d", "!d", 1),
        encoded(b"v1 T>>>??? broker-a 1 k").replace("-", "+").replace("_", "/"),
    ],
)
def test_a_malformed_handle_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        recall_handle.decode(text)


def test_a_handle_with_more_fields_is_read_as_by_the_original() -> None:
    text = encoded(b"v1 T_delay broker-a 1795810389000 7F000001 more")

    assert recall_handle.decode(text) == GOOD


def test_an_empty_field_matches_no_topic_and_no_broker() -> None:
    """Like RocketMQ, which rejects the topic rather than the handle."""
    assert recall_handle.decode(encoded(b"v1  broker-a 1 k")).topic == ""
    assert recall_handle.decode(encoded(b"v1 T  1 k")).broker_name == ""


@pytest.mark.parametrize("time", ["-1", "x", "\u0661", "99999999999999999999"])
def test_a_malformed_time_never_comes(time: str) -> None:
    """Like RocketMQ, which rejects the time rather than the handle."""
    text = urlsafe_b64encode(f"v1 T broker-a {time} k".encode()).decode()

    assert recall_handle.decode(text).due_ms == recall_handle.NO_TIME
