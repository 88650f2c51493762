"""The configuration of a broker: view it, and change it by a plan that can be undone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from django.urls import reverse

from console.gateway.errors import NO_PERMISSION, RequestFailedError
from console.gateway.fakes.cluster import FakeCluster
from console.people.audit.models import Entry
from tests.console.plans import token_on

if TYPE_CHECKING:
    from django.test import Client

pytestmark = pytest.mark.django_db

KEYS = "/brokers/b/broker-a/0/configuration/"
CHECKS = f"{KEYS}transactionCheckMax/"


def change_to(client: Client, value: str, seen: str = "20") -> object:
    """Review a change and apply it."""
    return client.post(
        CHECKS, {"token": token_on(client.post(CHECKS, {"value": value, "seen": seen}))}
    )


def test_each_key_shows_its_default_and_how_a_change_applies(actors, brokers) -> None:
    html = actors.admin.get(KEYS).text

    assert re.search(r"transactionCheckMax</span>.*?>20<.*?changed.*?>15<?", html, re.DOTALL)
    assert reverse("brokers:key", args=["broker-a", 0, "transactionCheckMax"]) in html
    assert reverse("brokers:key", args=["broker-a", 0, "listenPort"]) not in html
    assert "needs a restart" in html
    shown = {
        kind: actors.admin.get(KEYS, {"kind": kind}).context["rows"] for kind in ("changed", "live")
    }
    assert [each.key for each in shown["changed"]] == ["transactionCheckMax"]
    assert [each.key for each in shown["live"]] == ["traceOn", "transactionCheckMax"]
    assert [row.key for row in actors.admin.get(KEYS, {"q": "PORT"}).context["rows"]] == [
        "listenPort"
    ]


def test_a_change_is_shown_then_applied_then_undone(actors, brokers) -> None:
    plan = actors.admin.post(CHECKS, {"value": "30", "seen": "20"})
    assert brokers.keys["transactionCheckMax"].value == "20"
    assert ">20</del>" in plan.text
    assert ">30</ins>" in plan.text

    actors.admin.post(CHECKS, {"token": token_on(plan)})
    assert brokers.keys["transactionCheckMax"].value == "30"
    entry = Entry.objects.get(action="broker.configure")
    assert (entry.subject, entry.outcome) == ("broker-a:0", "done")
    assert entry.before == {"broker-a": {"transactionCheckMax": "20"}}

    undo = reverse("brokers:undo", args=[entry.pk])
    assert undo in actors.admin.get("/audit/").text
    actors.admin.post(undo, {"token": token_on(actors.admin.get(undo))})
    assert brokers.keys["transactionCheckMax"].value == "20"
    last = Entry.objects.latest("pk")
    assert last.remark == f"Undoes entry {entry.pk}."


def test_a_concurrent_change_is_shown_and_not_overwritten(actors, brokers) -> None:
    plan = actors.admin.post(CHECKS, {"value": "30", "seen": "20"})
    change_to(actors.admin, "25")

    answer = actors.admin.post(CHECKS, {"token": token_on(plan)})

    assert answer.status_code == 409
    assert brokers.keys["transactionCheckMax"].value == "25"
    opened_before = actors.admin.post(CHECKS, {"value": "30", "seen": "20"})
    assert opened_before.status_code == 409


@pytest.mark.parametrize("value", ["0", "many", "1000001", ""])
def test_a_value_that_the_key_does_not_accept_is_not_planned(value, actors, brokers) -> None:
    answer = actors.admin.post(CHECKS, {"value": value, "seen": "20"})

    assert "Planned changes" not in answer.text
    assert "field__error" in answer.text


def test_a_key_that_needs_a_restart_cannot_be_changed(actors, brokers) -> None:
    answer = actors.admin.get(f"{KEYS}listenPort/")

    assert answer.status_code == 404
    assert "be changed while broker-a:0 is running" in answer.text
    assert actors.admin.get(f"{KEYS}noSuchKey/").status_code == 404
    assert actors.admin.get("/brokers/b/broker-x/0/configuration/").status_code == 404


def test_another_brokers_plan_does_nothing(actors, brokers) -> None:
    brokers.add_topic("Orders")
    of_topic = actors.admin.post(
        "/topics/t/Orders/edit/",
        {"write_queue_nums": 9, "read_queue_nums": 9, "perm": 6, "broker_names": ["broker-a"]},
    )

    for token in ("forged", token_on(of_topic)):
        assert actors.admin.post(CHECKS, {"token": token}).status_code == 404
    assert brokers.keys["transactionCheckMax"].value == "20"


def test_a_brokers_rejection_is_reported_and_audited(actors, brokers, monkeypatch) -> None:
    plan = actors.admin.post(CHECKS, {"value": "30", "seen": "20"})

    def refuse(*_arguments: object) -> None:
        raise RequestFailedError(
            "127.0.0.1:10911", NO_PERMISSION, "can't be changed over the network"
        )

    monkeypatch.setattr(FakeCluster, "configure", refuse)
    answer = actors.admin.post(CHECKS, {"token": token_on(plan)})

    assert answer.status_code == 422
    assert "be changed over the network" in answer.text
    assert Entry.objects.get(action="broker.configure").outcome == "failed"


def test_read_only_users_see_no_configuration(actors, brokers) -> None:
    assert actors.reader.get(KEYS).status_code == 403
    assert actors.reader.get(CHECKS).status_code == 403
    assert "configuration/" not in actors.reader.get("/brokers/b/broker-a/0/").text
