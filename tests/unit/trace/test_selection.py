"""Which sends and pulls are watched, before an event exists."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import pytest

from broker_core.trace.filter import TracedMessage, TraceFilter
from broker_core.trace.selection import ALL, NONE, EventSelection


def selection(*filters: TraceFilter, is_full: bool = False) -> EventSelection:
    made = EventSelection()
    made.take(filters, is_full=is_full)
    return made


def test_without_a_filter_nothing_is_reported_and_at_the_level_full_everything() -> None:
    assert not selection().is_on
    assert selection().sends["T"] == selection().pulls["T", "g"] == NONE
    full = selection(TraceFilter(topic="U", sample=10), is_full=True)
    assert full.sends["T"] == full.pulls["T", "g"] == ALL


def test_samples_of_several_filters_have_a_common_one_that_misses_nothing() -> None:
    made = selection(
        TraceFilter(topic="T", sample=100),
        TraceFilter(topic="T*", sample=20),
        TraceFilter(topic="U", sample=7),
    )

    assert (made.sends["T"], made.sends["Tail"], made.sends["U"]) == (20, 20, 7)
    assert selection(TraceFilter(sample=4), TraceFilter(sample=9)).sends["T"] == ALL
    keys = [f"key {number}" for number in range(1_000)]
    expected = [
        key for key in keys if crc32(key.encode()) % 100 == 0 or crc32(key.encode()) % 20 == 0
    ]
    assert [key for key in keys if made.wants("T", key)] == expected
    assert made.wants("T", None)


@pytest.mark.parametrize(
    ("options", "sends", "pulls"),
    [
        ({"group": "g"}, ALL, ALL),
        ({"group": "other"}, ALL, NONE),
        ({"stages": ["stored"]}, ALL, NONE),
        ({"stages": ["stored", "woken"]}, ALL, ALL),
        ({"errors_only": True}, ALL, NONE),
        ({"min_latency_us": {"appended": 1}}, ALL, NONE),
        ({"min_latency_us": {"acknowledged": 1}}, ALL, ALL),
        ({"topic": "T", "sample": 8}, 8, 8),
        ({"topic": "U"}, NONE, NONE),
    ],
)
def test_only_pulls_that_a_filter_can_match_are_reported(
    options: dict[str, Any], sends: int, pulls: int
) -> None:
    made = selection(TraceFilter(**options))

    assert (made.sends["T"], made.pulls["T", "g"]) == (sends, pulls)
    assert made.wants_of_pulls("T", "g", None) is (pulls != NONE)


def test_copies_of_a_requested_message_may_be_in_any_topic() -> None:
    message = TracedMessage(topic="T", queue_id=0, queue_offset="0")

    assert selection(TraceFilter(message=message)).pulls["%RETRY%g", "g"] == ALL


def test_a_new_watch_discards_the_last_ones_notes() -> None:
    made = selection(TraceFilter(sample=2))
    noted = made.sample_cache
    noted["queue"] = "noted"

    made.take([TraceFilter(sample=3)], is_full=False)

    assert made.sample_cache == {}
