"""Verdicts on pages: by urgency, in words, and never green while something worsens."""

from __future__ import annotations

import msgspec
import pytest
from django.urls import reverse

from console.gateway.moment import now_ms
from console.history.access import history_store
from console.history.status import STATUS, Status
from console.overview.states import State
from console.overview.views import summarize_now
from console.verdicts.judge import VERDICTS, Verdict, Verdicts

pytestmark = pytest.mark.django_db

LAG = {"before": 1_204.0, "now": 3_870.0, "minutes": 10.0, "consumed": 12.0}
BEHIND = LAG | {"growth": 4.4, "age_ms": 60_000.0}
DEAD = {"count": 3.0, "minutes": 15.0}


def verdict(rule: str, severity: str, kind: str, name: str, **evidence: float) -> Verdict:
    at = now_ms()
    return Verdict(rule, severity, kind, "broker-a", name, at - 60_000, at, evidence)


@pytest.fixture(autouse=True)
def said(brokers) -> None:
    """What the collector says: it samples, and found three troubles."""
    brokers.add_topic("Orders")
    brokers.add_group("billing", online=True, topic="Orders")
    found = [
        verdict("stopped", "bad", "progress", "fraud@Orders", lag=90, minutes=7, members=2),
        verdict("falling-behind", "warn", "progress", "billing@Orders", **BEHIND),
        verdict("dead-letters", "warn", "group", "billing", **DEAD),
        verdict("of-a-later-version", "warn", "group", "billing"),
    ]
    store = history_store()
    store.note(STATUS, msgspec.json.encode(Status(at_ms=now_ms(), process=None)))
    store.note(VERDICTS, msgspec.json.encode(Verdicts(now_ms(), found)))


def test_the_overview_is_not_green_while_something_worsens() -> None:
    summary = summarize_now()

    assert summary.state is State.BAD
    assert summary.verdict.startswith("fraud · Orders: Consuming has stopped. Nothing consumed")


def test_the_overview_shows_them_with_evidence_cause_and_next_step(actors) -> None:
    content = actors.reader.get(reverse("overview:index")).content.decode()

    order = [content.index(f'data-rule="{rule}"') for rule in ("stopped", "falling-behind")]
    assert order == sorted(order)
    assert "1\u202f204 → 3\u202f870 in 10 min" in content
    assert "add members up to the number of queues" in content
    assert reverse("groups:detail", args=["fraud"]) in content
    assert "of-a-later-version" not in content


@pytest.mark.parametrize(
    ("name", "arguments", "rules"),
    [
        ("groups:detail", ["billing"], ["falling-behind", "dead-letters"]),
        ("topics:detail", ["Orders"], ["stopped", "falling-behind"]),
        ("brokers:detail", ["broker-a", 0], []),
    ],
)
def test_a_page_shows_those_of_its_subject(name, arguments, rules, actors) -> None:
    content = actors.reader.get(reverse(name, args=arguments)).content.decode()

    known = ["stopped", "falling-behind", "dead-letters"]
    assert [rule for rule in known if f'data-rule="{rule}"' in content] == rules


def test_a_silent_collector_is_no_good_news(actors) -> None:
    status = Status(at_ms=now_ms() - 600_000, process=None)
    history_store().note(STATUS, msgspec.json.encode(status))
    history_store().note(VERDICTS, msgspec.json.encode(Verdicts(0, [])))

    summary = summarize_now()

    assert summary.state is State.WARN
    assert "collector does not sample" in summary.verdict


def test_verdicts_that_cannot_be_read_break_no_page(actors) -> None:
    history_store().note(VERDICTS, b"{")

    assert actors.reader.get(reverse("overview:index")).status_code == 200
