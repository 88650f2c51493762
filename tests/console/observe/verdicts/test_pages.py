"""Verdicts on pages: by urgency, in words, and never green while something worsens."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import pytest
from django.urls import reverse

from console.accounts.models import CustomRole
from console.accounts.scopes import every_scope
from console.lib.moment import now_ms
from console.observe.flow.pages import KEPT_MS, SharedFlow, shared_flow
from console.observe.history.access import history_store
from console.observe.history.database import HistoryError
from console.observe.history.status import STATUS, Status
from console.observe.overview.issues import LISTED_MAX, UNFOLDED, WHOLE
from console.observe.overview.services import shared_summary, summarize_now
from console.observe.overview.states import State
from console.observe.verdicts.judge import HELD_MS, VERDICTS, Verdict, Verdicts
from tests.console.api.conftest import Program

if TYPE_CHECKING:
    from console.observe.flow.reading import Flow

pytestmark = pytest.mark.django_db

LAG = {"before": 1_204.0, "now": 3_870.0, "minutes": 10.0, "consumed": 12.0}
BEHIND = LAG | {"growth": 4.4, "age_ms": 60_000.0}
DEAD = {"count": 3.0, "minutes": 15.0}


def verdict(rule: str, severity: str, kind: str, name: str, **evidence: float) -> Verdict:
    at = now_ms()
    return Verdict(rule, severity, kind, "broker-a", name, at - 60_000, at, evidence)


@pytest.fixture(autouse=True)
def problems(brokers) -> None:
    """The collector's status: it samples, and found three problems."""
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
    assert summary.verdict.startswith("fraud · Orders: Consumption stopped. Nothing consumed")


def test_the_overview_shows_them_with_evidence_cause_and_next_step(actors) -> None:
    content = actors.reader.get(reverse("overview:index")).content.decode()

    order = [content.index(f'data-rule="{rule}"') for rule in ("stopped", "falling-behind")]
    assert order == sorted(order)
    assert "from 1\u202f204 to 3\u202f870 in 10 min" in content
    assert "Add consumers, up to the number of queues" in content
    assert reverse("groups:detail", args=["fraud"]) in content
    assert "of-a-later-version" not in content


def listed(content: str) -> list[str]:
    """Return each verdict next to the flow, in order."""
    beside = content.partition('class="card board__verdicts"')[2].partition("</section>")[0]
    seen, _, folded = beside.partition('<details class="board__more"')
    brief = [
        "brief" if found else "whole" for found in re.findall(r'trouble( trouble--brief)?"', seen)
    ]
    return brief + ["folded"] * folded.count('class="trouble trouble--brief"')


def says(count: int, at_ms: int) -> None:
    found = [verdict("dead-letters", "warn", "group", f"g{each}", **DEAD) for each in range(count)]
    history_store().note(VERDICTS, msgspec.json.encode(Verdicts(at_ms, found)))


@pytest.mark.parametrize("count", [1, UNFOLDED, UNFOLDED + 1, LISTED_MAX + 7])
def test_the_first_column_beside_the_flow_is_whole_and_less_urgent_ones_fold(count, actors) -> None:
    says(count, now_ms())

    content = actors.reader.get(reverse("overview:index")).content.decode()

    ways = ["whole"] * WHOLE + ["brief"] * (UNFOLDED - WHOLE) + ["folded"] * LISTED_MAX
    assert listed(content) == ways[: min(count, LISTED_MAX)]
    assert (f"{count - UNFOLDED} more</summary>" in content) == (count > UNFOLDED)
    assert ("7 less urgent issues aren't listed." in content) == (count > LISTED_MAX)


def test_a_verdict_reaches_an_open_overview_with_its_banner(actors) -> None:
    says(0, now_ms())
    assert "All clear" in actors.reader.get(reverse("overview:summary")).text

    says(1, now_ms())
    shared_summary.forget()

    html = actors.reader.get(reverse("overview:summary")).text
    assert 'data-rule="dead-letters"' in html
    assert "All clear" not in html


def test_rules_that_have_not_been_evaluated_lately_are_not_good_news(actors) -> None:
    says(0, now_ms() - HELD_MS)

    html = actors.reader.get(reverse("overview:index")).text

    assert "All clear" not in html
    assert "The rules haven&#x27;t run for over 2 minutes" in html
    assert summarize_now().state is State.WARN


def test_an_unreadable_history_is_explained_in_place_of_the_flow() -> None:
    def unreadable(at_ms: int) -> Flow:
        raise HistoryError("the disk fails")

    assert "The history can't be read" in SharedFlow(unreadable).html(now_ms())


@pytest.mark.parametrize(
    ("name", "arguments", "rules"),
    [
        ("groups:detail", ["billing"], ["falling-behind", "dead-letters"]),
        ("topics:detail", ["Orders"], ["stopped", "falling-behind"]),
        ("brokers:detail", ["broker-a", 0], []),
    ],
)
def test_a_page_shows_the_entries_of_its_subject(name, arguments, rules, actors) -> None:
    content = actors.reader.get(reverse(name, args=arguments)).content.decode()

    known = ["stopped", "falling-behind", "dead-letters"]
    assert [rule for rule in known if f'data-rule="{rule}"' in content] == rules


HEAD = {"message": "7F02", "times": "2", "offset": "9", "host": "10.0.0.5", "bytes": "112"}
PLACE = {"message_topic": "Orders", "message_queue": "3", "message_offset": "4"}
FOUND = [
    (
        verdict("queue-stuck", "bad", "progress", "g@Orders", queue=2, age_ms=9e5, lag=7, count=1),
        HEAD,
        ["is 7F02 at offset 9", "10.0.0.5", "redelivered 2 times", "/2/9/Orders/"],
    ),
    (
        verdict("dead-letters", "warn", "group", "g", **DEAD),
        {"message": "7F01", "times": "16", **PLACE, "message_topic": "%RETRY%g"},
        ["7F01 was redelivered 16 times", "/3/4/%25RETRY%25g/", "/dead-letters/g/g/"],
    ),
    (
        verdict("near-limit", "warn", "topic", "Orders", size=4e6, limit=4194304, minutes=15),
        PLACE,
        ["in queue 3 at offset 4", "/3/4/Orders/"],
    ),
    (
        verdict("hot-key", "warn", "topic", "Orders", share=0.62, rate=80),
        {"key": "<b>vip</b>"},
        ["62 % of the messages"],
    ),
    (
        verdict("hot-queue", "warn", "topic", "Orders", share=0.9, rate=80, queue=3),
        {"queues": "8"},
        ["Queue 3 receives 90 %", "has 8 queues"],
    ),
    (
        verdict("mismatch", "bad", "group", "billing", odd=1, members=3),
        {"wants": "2 \u00d7 T: *, 1 \u00d7 T: A", "odd_clients": "client-7"},
        ["1 of 3 consumers has a different subscription", "1 \u00d7 T: A", "client-7"],
    ),
    (
        verdict("many-versions", "warn", "group", "billing", versions=2, members=3),
        {"kinds": "2 \u00d7 JAVA v4_9_7, 1 \u00d7 GO v5_1_4"},
        ["run 2 different client versions", "GO v5_1_4"],
    ),
    (
        verdict("clock-off", "warn", "broker", "0", off_ms=42_000),
        {"host": "10.0.0.5", "way": "behind", "topic": "Orders", "hosts": "3"},
        ["10.0.0.5, which sends to", "behind the broker", "2 other clients are affected too"],
    ),
    (
        verdict("cold-reads", "warn", "progress", "g@Orders", count=9e3, share=0.7, minutes=15),
        {},
        ["from disk within 15 min", "70 %"],
    ),
]


@pytest.mark.parametrize(
    ("found", "names", "texts"), FOUND, ids=lambda each: getattr(each, "rule", "")
)
def test_a_verdict_names_its_evidence(found, names, texts, actors) -> None:
    for problems in (msgspec.structs.replace(found, names=names), found):
        store = history_store()
        store.note(VERDICTS, msgspec.json.encode(Verdicts(now_ms(), [problems])))
        content = actors.reader.get(reverse("overview:index")).content.decode()

        assert f'data-rule="{found.rule}"' in content
        if problems.names:
            assert [text for text in texts if text not in content] == []


def test_a_key_is_shown_only_to_users_who_may_see_its_topics_messages(
    actors, limited, limited_account
) -> None:
    hot = verdict("hot-key", "warn", "topic", "Orders", share=0.62, rate=80)
    found = [msgspec.structs.replace(hot, names={"key": "<b>vip</b>"})]
    history_store().note(VERDICTS, msgspec.json.encode(Verdicts(now_ms(), found)))
    pages = [reverse("overview:index"), reverse("topics:detail", args=["Orders"])]
    program = Program(limited_account, every_scope())

    def telling(client) -> list[str]:
        return [page for page in pages if "vip" in client.get(page).content.decode()]

    assert "&lt;b&gt;vip&lt;/b&gt;" in actors.reader.get(pages[1]).content.decode()
    assert telling(limited) == []
    assert "vip" not in shared_flow.html(now_ms() + KEPT_MS)
    for path in ("/verdicts", "/overview"):
        assert b"vip" not in program.get(path).content
    role = CustomRole.objects.create(name="one", actions=["message.see"], topics=["Orders"])
    role.members.add(limited_account)
    assert telling(limited) == pages[1:]


def test_a_silent_collector_is_not_good_news(actors) -> None:
    status = Status(at_ms=now_ms() - 600_000, process=None)
    history_store().note(STATUS, msgspec.json.encode(status))
    history_store().note(VERDICTS, msgspec.json.encode(Verdicts(0, [])))

    summary = summarize_now()

    assert summary.state is State.WARN
    assert "collector isn't sampling" in summary.verdict


def test_unreadable_verdicts_break_no_page(actors) -> None:
    history_store().note(VERDICTS, b"{")

    assert actors.reader.get(reverse("overview:index")).status_code == 200
