"""The overview: figures with their source, one verdict, the unknown never shown as zero."""

from __future__ import annotations

import pytest
from django.urls import reverse

from console.gateway.errors import BrokerDownError, NameServerDownError
from console.overview.history import GAP_MS, RateHistory, Sample
from console.overview.summary import State, summarize

pytestmark = pytest.mark.django_db


def test_a_quiet_broker_is_fine(brokers) -> None:
    brokers.add_topic("Orders")
    brokers.add_group("billing", online=True, topic="Orders")

    summary = summarize(brokers)

    assert summary.state is State.OK
    assert summary.verdict == "1 broker answers; no group lags behind."
    assert summary.put_tps.value == 12.5
    assert not summary.is_empty


def test_a_backlog_that_nobody_works_off_is_a_warning(brokers) -> None:
    brokers.add_topic("Orders")
    brokers.put("Orders", 0, 1, 2, 3)
    brokers.add_group("billing")
    brokers.offsets["billing", "Orders", 0] = 1

    summary = summarize(brokers)

    assert summary.state is State.WARN
    assert summary.verdict == "billing has a backlog and no member is connected."
    assert summary.backlog == 2


def test_a_backlog_that_is_being_worked_off_is_no_warning(brokers) -> None:
    brokers.add_topic("Orders")
    brokers.put("Orders", 0, 1, 2, 3)
    brokers.add_group("billing", online=True, topic="Orders")
    brokers.offsets["billing", "Orders", 0] = 1

    assert summarize(brokers).state is State.OK


def test_a_broker_that_does_not_answer_makes_sums_unknown(brokers) -> None:
    down = BrokerDownError("127.0.0.1:10911", "connection refused")
    brokers.runtime = lambda: {"127.0.0.1:10911": down}

    summary = summarize(brokers)

    assert summary.state is State.BAD
    assert summary.verdict == down.what
    assert summary.put_tps.value is None
    assert summary.put_tps.reason == down.what
    assert not summary.is_complete


def test_a_broker_that_leaves_a_figure_out_is_named(brokers) -> None:
    brokers.runtime_values["put_tps"] = None

    summary = summarize(brokers)

    assert summary.put_tps.value is None
    assert summary.put_tps.reason == "127.0.0.1:10911 did not say."


def test_no_registered_broker_is_bad(brokers) -> None:
    brokers.has_broker = False

    summary = summarize(brokers)

    assert summary.state is State.BAD
    assert "No broker is registered" in summary.verdict


def test_an_empty_broker_teaches_the_next_step(actors, brokers) -> None:
    html = actors.admin.get(reverse("overview:index")).content.decode()

    assert "nothing has been sent yet" in html
    assert reverse("demo:start") in html
    assert "setNamesrvAddr" in html


def test_a_reader_is_told_who_can_start_the_demo(actors, brokers) -> None:
    html = actors.reader.get(reverse("overview:index")).content.decode()

    assert reverse("demo:start") not in html
    assert "An administrator can start demo traffic" in html


def test_the_page_says_what_is_wrong_when_no_name_server_answers(actors, brokers) -> None:
    brokers.fails = NameServerDownError(["127.0.0.1:9876"], "connection refused")

    response = actors.reader.get(reverse("overview:index"))

    html = response.content.decode()
    assert response.status_code == 503
    assert "The name server at 127.0.0.1:9876 does not answer: connection refused." in html
    assert "TREBUCHET_NAMESRV" in html


def test_the_part_that_refreshes_itself_says_it_in_place(actors, brokers) -> None:
    brokers.fails = NameServerDownError(["127.0.0.1:9876"], "connection refused")

    response = actors.reader.get(reverse("overview:summary"), headers={"HX-Request": "true"})

    assert response.status_code == 200  # htmx shows nothing else
    assert "does not answer" in response.content.decode()
    assert "<html" not in response.content.decode()


def test_rates_are_samples_after_the_last_one_seen(actors, brokers) -> None:
    first = actors.reader.get(reverse("overview:rates")).json()
    [[at_ms, put, got]] = first["samples"]

    again = actors.reader.get(reverse("overview:rates"), {"since": str(at_ms)}).json()

    assert (put, got) == (12.5, 10.0)
    assert again["samples"] == []


@pytest.mark.parametrize("since", ["", "x", "-1", "9" * 400])
def test_rates_take_any_nonsense_for_the_beginning(since, actors, brokers) -> None:
    assert actors.reader.get(reverse("overview:rates"), {"since": since}).status_code == 200


def test_rates_without_a_broker_are_a_gap_with_the_reason(actors, brokers) -> None:
    brokers.fails = NameServerDownError(["127.0.0.1:9876"], "connection refused")

    answer = actors.reader.get(reverse("overview:rates")).json()

    assert answer["samples"][0][1:] == [None, None]
    assert "does not answer" in answer["problem"]


def test_viewers_at_the_same_time_share_a_sample() -> None:
    history = RateHistory()

    history.sample(1_000_000, lambda: Sample(1_000_000, 1.0, 1.0))
    history.sample(1_000_500, lambda: Sample(1_000_500, 2.0, 2.0))

    assert history.since(0) == [Sample(1_000_000, 1.0, 1.0)]


def test_the_line_breaks_where_nobody_looked() -> None:
    history = RateHistory()
    later = 1_000_000 + GAP_MS + 1

    history.sample(1_000_000, lambda: Sample(1_000_000, 1.0, 1.0))
    history.sample(later, lambda: Sample(later, 2.0, 2.0))

    assert history.since(0)[1] == Sample(1_000_001, None, None)
