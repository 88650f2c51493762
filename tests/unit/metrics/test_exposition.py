"""Prometheus' text, as its own parser reads it."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families as parsed

from broker_core.metrics.exposition import TRUNCATED, Family, Histogram, lines_of

CONSTANT = {"node_id": "broker-a"}


def text_of(*metrics: Family | Histogram, series_max: int = 10) -> str:
    return "".join(lines_of(metrics, CONSTANT, series_max))


def gauge(*series: tuple[dict[str, str], float | None], text: str = "A text") -> Family:
    return Family("a_gauge", "gauge", text, series)


def test_a_gauge_has_its_type_help_text_and_all_labels() -> None:
    [family, _] = parsed(text_of(gauge(({"topic": "T"}, 1.5))))

    assert (family.type, family.documentation) == ("gauge", "A text")
    assert [(each.labels, each.value) for each in family.samples] == [
        ({"node_id": "broker-a", "topic": "T"}, 1.5)
    ]


@pytest.mark.parametrize("value", ['a"b', "a\\b", "a\nb", "a\\nb", "数", "\ud800", "}", '",x="'])
def test_no_value_breaks_out_of_its_label(value: str) -> None:
    [family, _] = parsed(text_of(gauge(({"topic": value}, 1), ({"topic": "next"}, 2))))

    messages = [each.labels["topic"] for each in family.samples]
    assert messages == [value.replace("\ud800", "?"), "next"]


def test_a_text_of_several_lines_is_one_value() -> None:
    [family, _] = parsed(text_of(gauge(({}, 1), text="one\ntwo \\ three")))

    assert family.documentation == "one\ntwo \\ three"


def test_unknown_values_are_left_out() -> None:
    assert next(iter(parsed(text_of(gauge(({}, None)))))).samples == []


@pytest.mark.parametrize("value", [0, 7, 1 << 62, 0.1, 1e-9, 1.5e12])
def test_written_numbers_are_read_back(value: float) -> None:
    [family, _] = parsed(text_of(gauge(({}, value))))

    assert family.samples[0].value == value


def test_a_histogram_counts_cumulatively() -> None:
    metric = Histogram("took", "Time", (0.5, 1.0), [({"what": "put"}, (2, 0, 1), 4.25)])

    [family, _] = parsed(text_of(metric))

    found = {each.labels.get("le", each.name): each.value for each in family.samples}
    assert found == {"0.5": 2, "1.0": 2, "+Inf": 3, "took_sum": 4.25, "took_count": 3}


def test_series_beyond_the_limit_are_left_out_and_the_metric_is_named() -> None:
    metric = gauge(*(({"topic": str(n)}, n) for n in range(5)))

    [family, truncated] = parsed(text_of(metric, series_max=4))
    [whole, nothing] = parsed(text_of(metric, series_max=5))

    assert [len(each.samples) for each in (family, whole)] == [4, 5]
    assert truncated.name == TRUNCATED
    assert [each.labels["metric"] for each in truncated.samples] == ["a_gauge"]
    assert nothing.samples == []
