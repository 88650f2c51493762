"""Pages agree about what needs attention: a banner and a list beside it have one source."""

from __future__ import annotations

import re

import msgspec
import pytest
from django.urls import reverse

from console.gateway.errors import NameServerDownError
from console.lib.moment import now_ms
from console.observe.history.access import history_store
from console.observe.history.metrics import (
    CONSUMED,
    GROUP,
    LAG,
    MEMBERS,
    PROGRESS,
    PUT,
    TOPIC,
    Subject,
    pair,
)
from console.observe.overview.services import summarize_now
from console.observe.verdicts.judge import HELD_MS, VERDICTS, Verdict, Verdicts
from tests.support.history_points import keep

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("collector")]

LEFT_ALONE = "billing is lagging and has no consumers."
NO_CONSUMER = Verdict(
    "no-consumer", "warn", GROUP, "broker-a", "billing", 0, 0, {"lag": 2.0, "age_ms": 60_000.0}
)


def judge(*verdicts: Verdict, at_ms: int | None = None) -> None:
    """Set what the rules found, when they ran."""
    at = now_ms() if at_ms is None else at_ms
    found = [msgspec.structs.replace(each, since_ms=at, seen_ms=at) for each in verdicts]
    history_store().note(VERDICTS, msgspec.json.encode(Verdicts(at, found)))


@pytest.fixture(autouse=True)
def left_alone(brokers) -> None:
    """A group with two unread messages and no consumer, before a rule reports it."""
    brokers.add_topic("Orders")
    brokers.put("Orders", 0, 1, 2, 3)
    brokers.add_group("billing")
    brokers.offsets["billing", "Orders", 0] = 1
    judge()


def listed(html: str) -> list[str]:
    """Return the texts of a page's list of issues."""
    return [
        re.sub(r"<[^>]+>|\s+", " ", each).strip()
        for each in re.findall(r'<li class="trouble.*?</li>', html, re.DOTALL)
    ]


def banner(html: str) -> str:
    text = html.partition('class="verdict"')[2].partition(">")[2].partition('<div class="tiles"')[0]
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


@pytest.mark.parametrize("name", ["overview:index", "overview:summary"])
def test_the_list_beside_the_flow_has_the_issue_of_the_banner(name, actors) -> None:
    html = actors.reader.get(reverse(name)).text

    assert banner(html) == LEFT_ALONE
    assert listed(html) == [LEFT_ALONE]
    assert "All clear" not in html


def test_the_banner_counts_as_many_issues_as_are_listed(actors) -> None:
    judge(at_ms=now_ms() - HELD_MS)

    html = actors.reader.get(reverse("overview:index")).text

    assert len(listed(html)) == 2
    assert "1 more issue." in banner(html)
    assert "The rules haven&#x27;t run for over 2 minutes" in html


def test_an_issue_that_a_rule_reports_is_listed_once(actors) -> None:
    judge(NO_CONSUMER)

    for address in (reverse("overview:index"), reverse("groups:detail", args=["billing"])):
        html = actors.reader.get(address).text
        assert len(listed(html)) == 1, address
        assert 'data-rule="no-consumer"' in html, address
        assert LEFT_ALONE not in html, address
    assert summarize_now().verdict.startswith("billing: ")


@pytest.mark.parametrize("name", ["groups:detail", "groups:progress"])
def test_a_group_s_page_lists_the_issue_and_does_not_call_it_clear(name, actors) -> None:
    html = actors.reader.get(reverse(name, args=["billing"])).text

    assert listed(html) == [LEFT_ALONE]
    assert "all clear" not in html
    assert "keeping up" not in html
    assert "stopped" in html.partition('class="tile__value')[2].partition("</p>")[0]


def test_the_list_of_groups_says_the_same(actors) -> None:
    html = actors.reader.get(reverse("groups:list")).text

    assert ">stopped</span>" in html
    assert "keeping up" not in html


def test_a_group_with_another_issue_is_not_clear(brokers, actors) -> None:
    brokers.add_group("fraud", online=True, topic="Orders")
    brokers.offsets["fraud", "Orders", 0] = 3
    dead = Verdict("dead-letters", "warn", GROUP, "broker-a", "fraud", 0, 0, {})
    judge(msgspec.structs.replace(dead, evidence={"count": 3.0, "minutes": 15.0}))

    html = actors.reader.get(reverse("groups:detail", args=["fraud"])).text

    assert len(listed(html)) == 1
    assert "1 issue above" in html
    assert "all clear" not in html


def test_a_lag_that_grows_is_not_called_clear(brokers, actors) -> None:
    brokers.add_group("fraud", online=True, topic="Orders")
    brokers.offsets["fraud", "Orders", 0] = 1
    lags = [minute * 50 for minute in range(7) for _sample in range(6)]
    keep(history_store(), now_ms() - 420_000, {(Subject(GROUP, "broker-a", "fraud"), LAG): lags})

    html = actors.reader.get(reverse("groups:detail", args=["fraud"])).text

    assert "lag growing" in html
    assert "all clear" not in html


def test_before_the_rules_ran_nothing_is_called_clear(brokers, actors) -> None:
    brokers.offsets["billing", "Orders", 0] = 3
    judge(at_ms=0)

    html = actors.reader.get(reverse("overview:index")).text

    assert "All clear" not in html
    assert "Not checked yet" in html


@pytest.mark.parametrize(
    ("members", "is_said"), [(0, True), (2, False)], ids=["without consumers", "a slow message"]
)
def test_the_flow_says_that_a_group_stopped_where_the_list_has_it(members, is_said, actors) -> None:
    rows = {
        (Subject(TOPIC, "broker-a", "Orders"), PUT): [10] * 6,
        (Subject(GROUP, "broker-a", "billing"), MEMBERS): [members] * 6,
        (Subject(PROGRESS, "broker-a", pair("billing", "Orders")), CONSUMED): [0] * 6,
        (Subject(PROGRESS, "broker-a", pair("billing", "Orders")), LAG): [2] * 6,
    }
    keep(history_store(), now_ms() - 60_000, rows)

    html = actors.reader.get(reverse("overview:index")).text

    assert ('class="flow__stopped"' in html) is is_said


def test_without_a_name_server_nothing_is_called_clear(brokers, actors) -> None:
    brokers.fails = NameServerDownError(["127.0.0.1:9876"], "connection refused")

    html = actors.reader.get(reverse("overview:index")).text

    assert "All clear" not in html
