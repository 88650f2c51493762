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


def test_each_step_has_only_its_facts() -> None:
    expected = {
        (step.name, client, broker)
        for step in STEPS
        for client in step.clients
        for broker in (OURS, THEIRS)
    }

    found = read()

    assert sorted(expected - found.keys()) == [], "run with TREBUCHET_WRITE_OUTCOMES=1"
    assert sorted(found.keys() - expected) == [], "steps that no client takes"


def test_only_differences_have_a_reason() -> None:
    facts = read()
    differing = {
        (step.name, client)
        for step in STEPS
        for client in step.clients
        if facts.get((step.name, client, OURS)) != facts.get((step.name, client, THEIRS))
    }

    assert differing == {(step.name, client) for step in STEPS for client in step.differs}


def test_none_of_our_steps_failed() -> None:
    broken = [key for key, text in read().items() if key[2] == OURS and "broke off" in text]

    assert broken == []


def test_the_page_equals_its_source() -> None:
    assert PAGE.read_text(encoding="utf-8") == page_of(STEPS, read())


def test_a_run_with_a_different_outcome_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(WRITE_VARIABLE, raising=False)
    right = read()["single", "Go", OURS]

    assert complaints(STEPS, "Go", OURS, {"single": right}) == {}
    report = complaints(STEPS, "Go", OURS, {"single": "SEND_OK at 7"})["single"]
    assert "single: Go against ours saw\n    SEND_OK at 7\n" in report
    assert right in report


def test_an_unlisted_step_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WRITE_VARIABLE, raising=False)

    found = complaints(STEPS, "Go", OURS, {"TLS": "sent"})

    assert found == {"TLS": "Go has a step that tests/interop/client_steps.py does not know: TLS"}


def verdict_of(*takes: Differences) -> tuple[Verdict, list[list[str]]]:
    """Return the verdict on repeated runs, and the brokers of each."""
    left = list(takes)
    requests: list[list[str]] = []

    def take(brokers: list[str]) -> Differences:
        requests.append(brokers)
        return left.pop(0)

    return run_and_confirm(take, [OURS, THEIRS]), requests


def test_a_result_without_differences_is_measured_once() -> None:
    assert verdict_of({}) == (Verdict([], []), [[OURS, THEIRS]])


def test_a_difference_is_measured_again_and_counts_when_it_repeats() -> None:
    first = {(THEIRS, "orderly"): "late", (THEIRS, "pull"): "none"}
    again = {(THEIRS, "pull"): "none at all", (THEIRS, "TLS"): "refused"}

    verdict, requests = verdict_of(first, again)

    assert requests == [[OURS, THEIRS], [THEIRS]]
    assert verdict.wrong == ["none at all"]
    assert verdict.once == ["late", "refused"]
