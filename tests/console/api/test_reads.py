"""Reading by the API: the data of the pages, as JSON."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.django_db

READS = [
    "/overview",
    "/verdicts",
    "/clusters",
    "/brokers/broker-a/0",
    "/brokers/broker-a/0/configuration",
    "/files",
    "/files/broker-a/topics.json",
    "/files/broker-a/topics.json/versions",
    "/topics",
    "/topics/Orders",
    "/groups",
    "/groups/billing",
    "/groups/billing/subscriptions",
    "/offsets?group=billing&topic=Orders",
    "/messages?topic=Orders&range=1h",
    "/messages/distribution?topic=Orders",
    "/messages/find?by=key&topic=Orders&text=x",
    "/dead-letters",
    "/replays",
    "/history/topic/messages/Orders",
    "/marks",
    "/alerts",
    "/alerts/history",
    "/silences",
    "/alert-rules",
    "/alert-channels",
    "/alert-preferences",
    "/maintenance-windows",
    "/report-runs",
    "/report-schedules",
    "/lake",
    "/sql/rights",
    "/audit",
    "/people",
    "/roles",
    "/openapi.json",
]


@pytest.mark.parametrize("path", READS)
def test_each_read_operation_answers(path, programs, brokers) -> None:
    brokers.add_topic("Orders")
    brokers.add_group("billing")

    response = programs.admin.get(path)

    assert response.status_code == 200, response.content
