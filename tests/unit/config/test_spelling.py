from __future__ import annotations

import pytest

from broker_core.config.spelling import did_you_mean, nearest

KNOWN = ("brokerName", "brokerIP1", "brokerIP2", "listenPort", "flushDiskType", "port")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("brokername", "brokerName"),
        ("brokerNmae", "brokerName"),
        ("brokeName", "brokerName"),
        ("brokerrNaame", "brokerName"),
        ("brokerrNaamee", None),
        ("listenProt", "listenPort"),
        ("Port", "port"),
        ("prt", None),
        ("brokerIP", "brokerIP1"),
        ("commercialEnable", None),
        ("", None),
        ("x" * 1_000_000, None),
    ],
)
def test_a_suggested_name_is_at_most_two_typos_away(name: str, found: str | None) -> None:
    assert nearest(name, KNOWN) == found


def test_a_suggestion_is_only_made_with_a_guess() -> None:
    assert did_you_mean("listenProt", KNOWN) == "; did you mean 'listenPort'?"
    assert did_you_mean("timerStopEnqueue", KNOWN) == ""
