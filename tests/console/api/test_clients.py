"""Connected clients by the API: list producers, and disconnect one."""

from __future__ import annotations

import pytest

from console.gateway.answers import Member
from console.gateway.connections import Producer
from console.people.audit.models import Entry

pytestmark = pytest.mark.django_db


def test_programs_can_list_producers_plan_and_disconnect(programs, brokers) -> None:
    where = ("10.0.0.5@17", "10.0.0.5:4411", "JAVA", 407)
    brokers.producers.append(Producer("shop", *where, 1_000, ("broker-a",)))
    brokers.members["billing"] = [Member(*where, ("broker-a",))]
    body = {"client_id": "10.0.0.5@17", "reason": "release"}
    path = "/clients/billing/disconnect"

    listed = programs.reader.get("/producers?q=shop").json()["items"]
    planned = programs.operator.post(f"{path}?dry_run=true", body).json()
    refused = programs.reader.post(path, body)
    done = programs.operator.post(path, body)
    again = programs.operator.post(path, body)

    assert [each["client_id"] for each in listed] == ["10.0.0.5@17"]
    assert [each["value"] for each in planned["effects"]] == [1, 1, 1, 1]
    assert (refused.status_code, done.status_code, again.status_code) == (403, 200, 404)
    entry = Entry.objects.get(action="client.disconnect")
    assert (entry.pk, entry.after["reason"]) == (done.json()["entry"], "release")
