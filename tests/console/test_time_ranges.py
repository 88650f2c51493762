"""Time ranges in URLs: every page and operation reports an impossible one and shows no data."""

from __future__ import annotations

import html
from urllib.parse import urlencode

import pytest
from django.urls import reverse

from console.lib.moment import now_ms
from tests.console.api.conftest import Program

pytestmark = pytest.mark.django_db

SEARCH, FIND = "/messages/", "/messages/find/"
MOMENT_MS = 1_700_000_000_000
WIDE_MS = 367 * 86_400_000
IMPOSSIBLE = [
    ({"from": MOMENT_MS + 10_000, "to": MOMENT_MS}, "ends before it starts"),
    ({"from": "yesterday", "to": MOMENT_MS}, "isn't a time"),
    ({"from": MOMENT_MS}, "needs a start (from) and an end (to)"),
    ({"from": MOMENT_MS - WIDE_MS, "to": MOMENT_MS}, "longer than 366 days"),
    ({"range": "2h"}, "isn't a time range"),
]


@pytest.mark.parametrize(("span", "problem"), IMPOSSIBLE)
def test_an_impossible_range_shows_its_problem_and_no_messages(
    span, problem, actors, admin_account, brokers
) -> None:
    brokers.add_topic("Orders", queue_nums=1)
    brokers.add_group("billing")
    brokers.offsets["billing", "Orders", 0] = 0
    brokers.put_message("Orders", 0, b"{}", now_ms() - 1_000, KEYS="order-7 eu")
    query = {"topic": "Orders"} | span
    keyed = query | {"by": "key", "text": "order-7"}
    chart = ["topic", "messages", "Orders"]
    search, find = actors.admin.get(SEARCH, query), actors.admin.get(FIND, keyed)
    overview = actors.admin.get(reverse("overview:index"), span)
    topic = actors.admin.get(reverse("topics:detail", args=["Orders"]), span)
    refused = [
        actors.admin.get(reverse("browse:scan"), query),
        actors.admin.get(reverse("browse:distribution"), query),
        actors.admin.post(f"{reverse('browse:export', args=['csv'])}?{urlencode(query)}"),
        actors.admin.get(reverse("browse:of-group", args=["billing"]), span),
        actors.admin.get(reverse("history:points", args=chart), span),
        actors.admin.get(reverse("history:csv", args=chart), span),
    ]
    program = Program(admin_account)
    responses = [
        program.get(f"/messages?{urlencode(query)}"),
        program.get(f"/messages/find?{urlencode(keyed)}"),
        program.get(f"/messages/distribution?{urlencode(query)}"),
        program.get(f"/messages/export/jsonl?{urlencode(query)}"),
        program.get(f"/history/topic/messages/Orders?{urlencode(span)}"),
    ]

    for page in (search, find, overview, topic):
        assert problem in html.unescape(page.text)
    assert "order-7 eu" not in search.text + find.text
    assert "data-history=" not in overview.text + topic.text
    assert [each.status_code for each in refused] == [404] * 6
    assert [each.status_code for each in responses] == [422] * 5
    assert all(problem in each.json()["detail"] for each in responses)
