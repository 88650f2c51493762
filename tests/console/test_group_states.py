"""A group's state: the worst finding of the rules, and unknown where they haven't run."""

from __future__ import annotations

import re

import msgspec
import pytest
from django.urls import reverse

from console.broker.groups.states import OF_RULE, Reading, group_states
from console.lib.moment import now_ms
from console.observe.history.access import history_store
from console.observe.history.database import HistoryError
from console.observe.history.reading import Spark
from console.observe.verdicts.judge import HELD_MS, VERDICTS, Verdict, Verdicts
from console.observe.verdicts.rules import BY_NAME

pytestmark = pytest.mark.django_db

EVIDENCE = {
    "falling-behind": {"before": 1.0, "now": 900.0, "minutes": 10.0, "consumed": 12.0}
    | {"growth": 4.4, "age_ms": 60_000.0},
    "stopped": {"lag": 90.0, "minutes": 7.0, "members": 2.0},
    "rewound": {"count": 12.0, "minutes": 15.0},
    "no-consumer": {"lag": 90.0, "age_ms": 60_000.0},
    "stalled": {"lag": 90.0, "age_ms": 60_000.0, "members": 2.0},
    "queue-stuck": {"queue": 1.0, "age_ms": 400_000.0, "lag": 90.0, "count": 1.0},
    "dead-letters": {"count": 3.0, "minutes": 15.0},
}


def says(*found: tuple[str, str], at_ms: int | None = None) -> None:
    """Set the rules' findings, each for a subject."""
    at = now_ms() if at_ms is None else at_ms
    verdicts = [
        Verdict(
            rule,
            "warn",
            BY_NAME[rule].kind,
            "broker-a",
            name,
            at - 60_000,
            at,
            EVIDENCE.get(rule, {}),
        )
        for rule, name in found
    ]
    history_store().note(VERDICTS, msgspec.json.encode(Verdicts(at, verdicts)))


@pytest.fixture
def world(brokers):
    brokers.add_topic("Orders")
    brokers.put("Orders", 0, 1, 2, 3)
    for group in ("billing", "fraud", "shipping"):
        brokers.add_group(group, online=True, topic="Orders")
        brokers.offsets[group, "Orders", 0] = 1
    brokers.add_group("silent")
    return brokers


def shown(actors, query: str = "") -> dict[str, str]:
    """Return the list's text for each group, in order."""
    html = actors.reader.get(f"{reverse('groups:list')}{query}").content.decode()
    rows = re.findall(r"/groups/g/([\w-]+)/\">.*?</tr>", html, re.DOTALL)
    cells = re.split(r"/groups/g/[\w-]+/\">", html)[1:]
    words = ("stopped", "stalled", "falling behind", "rewound", "keeping up")
    return {
        name: next((word for word in words if f">{word}<" in cell), "unknown")
        for name, cell in zip(rows, cells, strict=True)
    }


def test_every_rule_about_a_groups_reading_exists() -> None:
    assert OF_RULE.keys() <= BY_NAME.keys()
    assert set(OF_RULE.values()) | {Reading.GROWING, Reading.FINE} == set(Reading)


@pytest.mark.parametrize(
    ("rule", "name", "word"),
    [
        ("stopped", "billing@Orders", "stopped"),
        ("no-consumer", "billing", "stopped"),
        ("stalled", "billing@Orders", "stalled"),
        ("queue-stuck", "billing@Orders", "stalled"),
        ("falling-behind", "billing@Orders", "falling behind"),
        ("rewound", "billing@Orders", "rewound"),
        ("dead-letters", "billing", "keeping up"),
    ],
)
def test_the_list_shows_each_groups_state(rule, name, word, actors, world) -> None:
    says((rule, name))

    found = shown(actors)

    assert found == {
        "billing": word,
        "fraud": "keeping up",
        "shipping": "keeping up",
        "silent": "unknown",
    }


def test_the_worst_of_several_verdicts_counts(world) -> None:
    says(
        ("rewound", "billing@Orders"), ("stopped", "billing@Late"), ("falling-behind", "billing@A")
    )

    state = group_states(now_ms()).of("billing")

    assert (state.reading, state.topic) == (Reading.STOPPED, "Late")


def test_the_list_is_ordered_by_the_groups_state(actors, world) -> None:
    says(("rewound", "shipping@Orders"), ("stalled", "fraud@Orders"))

    assert list(shown(actors, "?sort=reading"))[:2] == ["fraud", "shipping"]
    assert list(shown(actors, "?sort=-reading"))[-2:] == ["shipping", "fraud"]


def test_subjects_that_rules_have_not_evaluated_lately_are_not_called_healthy(
    actors, world
) -> None:
    says(("stopped", "billing@Orders"), at_ms=now_ms() - HELD_MS)

    assert set(shown(actors).values()) == {"unknown"}
    page = actors.reader.get(reverse("groups:detail", args=["billing"])).content.decode()
    assert "run recently." in page


def test_an_unreadable_history_leaves_the_state_unknown(monkeypatch, actors, world) -> None:
    def unreadable(_store):
        raise HistoryError("the disk fails")

    monkeypatch.setattr("console.broker.groups.states.verdicts_of", unreadable)

    assert set(shown(actors).values()) == {"unknown"}


def test_a_groups_page_shows_how_where_and_since_when_it_reads(actors, world) -> None:
    says(("falling-behind", "billing@Orders"))

    page = actors.reader.get(reverse("groups:detail", args=["billing"])).content.decode()

    tile = page.partition('class="tile"')[2].partition("</div>")[0]
    assert "falling behind" in tile
    assert "Orders, <time" in tile


@pytest.mark.parametrize(
    ("lags", "reading"),
    [
        ([0, 10, 20, 30, 40], Reading.GROWING),
        ([0, 10, 20, 30, None], Reading.GROWING),
        ([40, 30, 20, 30, 20], Reading.FINE),
        ([0, 1, 2, 3, 4], Reading.FINE),
        ([None, None, None, 10, 90], Reading.FINE),
        ([50, 60, 60, 70, 80], Reading.FINE),
    ],
)
def test_a_growing_lag_is_reported_before_a_rule_has_enough_data(
    world, lags: list[float | None], reading: Reading
) -> None:
    says()

    states = group_states(now_ms())

    spark = Spark([*[0.0] * 55, *lags], 0)
    assert states.of("billing", lag=spark).reading is reading
    assert states.rank("billing", spark) == list(Reading).index(reading)


def test_a_rules_alert_takes_precedence_over_a_growing_lag(world) -> None:
    says(("stopped", "billing@Orders"))

    state = group_states(now_ms()).of("billing", lag=Spark([0.0, 10, 20, 30, 40], 0))

    assert state.reading is Reading.STOPPED
