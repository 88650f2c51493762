"""The table of outcomes is complete: each step of each client, with both brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.interop.client_steps import STEPS
from tests.support.outcome_page import (
    OURS,
    PAGE,
    THEIRS,
    WRITE_VARIABLE,
    Differences,
    Verdict,
    complaints,
    page_of,
    read,
    run_and_confirm,
)

if TYPE_CHECKING:
    import pytest


def test_each_step_has_its_facts_and_nothing_else_is_there() -> None:
    expected = {
        (step.name, client, broker)
        for step in STEPS
        for client in step.clients
        for broker in (OURS, THEIRS)
    }

    found = read()

    assert sorted(expected - found.keys()) == [], "run with TREBUCHET_WRITE_OUTCOMES=1"
    assert sorted(found.keys() - expected) == [], "steps that nobody takes"


def test_what_differs_has_a_reason_and_what_does_not_has_none() -> None:
    facts = read()
    differing = {
        (step.name, client)
        for step in STEPS
        for client in step.clients
        if facts.get((step.name, client, OURS)) != facts.get((step.name, client, THEIRS))
    }

    assert differing == {(step.name, client) for step in STEPS for client in step.differs}


def test_no_step_of_ours_broke_off() -> None:
    broken = [key for key, text in read().items() if key[2] == OURS and "broke off" in text]

    assert broken == []


def test_the_page_is_as_it_is_written() -> None:
    assert PAGE.read_text(encoding="utf-8") == page_of(STEPS, read())


def test_a_run_that_sees_something_else_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WRITE_VARIABLE, raising=False)
    right = read()["single", "Go", OURS]

    assert complaints(STEPS, "Go", OURS, {"single": right}) == {}
    told = complaints(STEPS, "Go", OURS, {"single": "SEND_OK at 7"})["single"]
    assert "single: Go against ours saw\n    SEND_OK at 7\n" in told
    assert right in told


def test_a_step_that_nobody_wrote_down_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WRITE_VARIABLE, raising=False)

    found = complaints(STEPS, "Go", OURS, {"TLS": "sent"})

    assert found == {"TLS": "Go has a step that tests/interop/client_steps.py does not know: TLS"}


def verdict_of(*takes: Differences) -> tuple[Verdict, list[list[str]]]:
    """Return the verdict on repeated runs, and the brokers of each."""
    left = list(takes)
    asked: list[list[str]] = []

    def take(brokers: list[str]) -> Differences:
        asked.append(brokers)
        return left.pop(0)

    return run_and_confirm(take, [OURS, THEIRS]), asked


def test_what_differs_nowhere_is_taken_once() -> None:
    assert verdict_of({}) == (Verdict([], []), [[OURS, THEIRS]])


def test_what_differs_is_taken_again_and_counts_when_it_comes_twice() -> None:
    first = {(THEIRS, "orderly"): "late", (THEIRS, "pull"): "none"}
    again = {(THEIRS, "pull"): "none at all", (THEIRS, "TLS"): "refused"}

    verdict, asked = verdict_of(first, again)

    assert asked == [[OURS, THEIRS], [THEIRS]]
    assert verdict.wrong == ["none at all"]
    assert verdict.once == ["late", "refused"]
