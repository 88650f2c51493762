"""docs/logs.md lists each event that the broker, analytics and the console log, and no other."""

from __future__ import annotations

import re

from tests.support.log_events import LogCall, log_calls
from tests.support.sources import ROOT

ROW = re.compile(r"^\| `(?P<event>[^`]+)` \|", re.MULTILINE)


def events_of_page() -> list[str]:
    return ROW.findall((ROOT / "docs" / "logs.md").read_text())


def logged_events() -> dict[str, LogCall]:
    return {
        call.event: call for call in log_calls() if call.event and not call.text.startswith("%")
    }


def test_the_page_lists_each_event_once() -> None:
    documented = events_of_page()
    logged = logged_events()

    assert sorted(logged.keys() - set(documented)) == []
    assert sorted(set(documented) - logged.keys()) == []
    assert len(documented) == len(set(documented))


def test_a_log_line_is_an_event_followed_by_keys_and_values() -> None:
    line = re.compile(r"[\w' ,.-]+?( [\w.]+=\S+)*")
    wrong = [
        f"{call.path}:{call.line}: {call.text}"
        for call in log_calls()
        if not call.text.startswith("%") and not line.fullmatch(call.text)
    ]

    assert wrong == []
