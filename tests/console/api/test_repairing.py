"""Sending messages, handling dead letters, alerts and reports by the API."""

from __future__ import annotations

import pytest

from console.gateway.answers import Member
from console.messages.dead_letters import replaying
from console.messages.dead_letters.models import Item, Run, State
from console.messages.sending.models import HalfMessage
from console.people.audit.models import Entry

pytestmark = pytest.mark.django_db


@pytest.fixture
def known(brokers, monkeypatch):
    monkeypatch.setattr(replaying, "launch", lambda _run: None)
    brokers.add_topic("Orders")
    brokers.add_group("billing")
    brokers.add_topic("%RETRY%billing", queue_nums=1)
    brokers.give_up("billing", "Orders", 1_000)
    brokers.members["billing"] = [Member("b@1", "127.0.0.1:5", "JAVA", 407, ("broker-a",))]
    return brokers


def test_messages_are_sent_and_read_back(programs, known) -> None:
    body = {"topic": "Orders", "body": "n ${n}", "keys": "k1", "count": 3, "queue": "broker-a:1"}

    plan = programs.operator.post("/messages?dry_run=true", body)
    done = programs.operator.post("/messages", body).json()

    assert plan.json()["title"] == "Send 3 messages to Orders"
    assert (len(done["sent"]), done["wanted"], done["problem"]) == (3, 3, "")
    first = done["sent"][0]
    read = programs.admin.get(f"/messages/broker-a/1/{first['queue_offset']}/Orders").json()
    assert (read["body"], read["keys"], read["uniq_key"]) == ("n 1", "k1", first["uniq_key"])
    assert Entry.objects.get().after["sent"] == 3


@pytest.mark.parametrize("is_half", [False, True])
@pytest.mark.parametrize("field", ["tag", "keys", "properties"])
@pytest.mark.parametrize(
    ("character", "reason"),
    [
        ("\0", "Null characters are not allowed."),
        ("\x01", "Remove the control characters U+0001 and U+0002. They separate properties."),
        ("\x02", "Remove the control characters U+0001 and U+0002. They separate properties."),
    ],
)
def test_a_character_that_breaks_properties_is_rejected_with_the_reason(
    character, reason, field, is_half, programs, known
) -> None:
    text = f"a=b{character}c"

    done = programs.operator.post("/messages", {"topic": "Orders", field: text, "is_half": is_half})

    assert done.status_code == 422
    assert [(each["field"], each["problem"]) for each in done.json()["errors"]] == [(field, reason)]
    assert not HalfMessage.objects.exists()


def test_other_control_characters_are_stored_unchanged(programs, known) -> None:
    fields = {"tag": "\x1ft", "keys": "k\x1f", "properties": " a =\x0bb\x1c \r\n c = d\x1f"}

    done = programs.operator.post(
        "/messages", {"topic": "Orders", "queue": "broker-a:1", **fields}
    ).json()

    offset = done["sent"][0]["queue_offset"]
    read = programs.admin.get(f"/messages/broker-a/1/{offset}/Orders").json()
    assert (read["tags"], read["keys"]) == ("\x1ft", "k\x1f")
    assert (read["properties"]["a"], read["properties"]["c"]) == ("\x0bb\x1c", "d\x1f")


def test_a_body_is_visible_only_to_users_allowed_to_read_it(programs, known) -> None:
    programs.operator.post(
        "/messages", {"topic": "Orders", "body": "secret", "queue": "broker-a:1"}
    )

    read = programs.reader.get("/messages/broker-a/1/0/Orders").json()
    searched = programs.reader.get("/messages?topic=Orders&text=secret")

    assert (read["body"], read["body_encoding"]) == (None, "hidden")
    assert searched.status_code == 422


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_is_begun_listed_and_ended(is_commit, programs, known) -> None:
    programs.operator.post("/messages", {"topic": "Orders", "is_half": True})
    (half,) = programs.operator.get("/transactions").json()

    done = programs.operator.post(f"/transactions/{half['id']}/end", {"commit": is_commit})

    assert done.status_code == 200, done.content
    assert programs.operator.get("/transactions").json() == []
    last = Entry.objects.get(action="message.end")
    assert last.after["outcome"] == ("commit" if is_commit else "roll back")


def test_a_transaction_is_forgotten(programs, known) -> None:
    programs.operator.post("/messages", {"topic": "Orders", "is_half": True})

    done = programs.operator.delete(f"/transactions/{HalfMessage.objects.get().pk}")

    assert done.status_code == 200
    assert not HalfMessage.objects.exists()


def test_a_message_is_handed_to_a_member(programs, known) -> None:
    programs.operator.post("/messages", {"topic": "Orders", "queue": "broker-a:1"})
    path = "/deliveries/broker-a/1/0/Orders?group=billing&client_id=b%401"

    done = programs.operator.post(path)

    assert done.status_code == 200, done.content
    assert Entry.objects.filter(action="message.deliver").count() == 1
    assert programs.reader.post(path).status_code == 403


def test_dead_letters_are_listed_replayed_and_then_left_out(programs, known) -> None:
    body = {"target": "retry", "rate": 10}
    (letter,) = programs.reader.get("/dead-letters/billing").json()["items"]

    plan = programs.operator.post("/dead-letters/billing/replays?dry_run=true", body)
    run = programs.operator.post(f"/dead-letters/billing/replays?m={letter['key']}", body).json()
    other = programs.operator.post("/dead-letters/billing/replays", body)

    assert plan.json()["effects"][0]["value"] == 1
    assert (run["total"], run["state"], run["target"]) == (1, "running", "retry")
    assert other.status_code == 409
    assert Run.objects.count() == 1
    assert Entry.objects.get().action == "dead-letter.replay"
    cancelled = programs.operator.post(f"/replays/{run['id']}/cancel")
    assert cancelled.status_code == 200
    assert Run.objects.get().cancel_requested


def test_dead_letters_are_discarded_with_a_reason(programs, known) -> None:
    path = "/dead-letters/billing/discards"

    without = programs.operator.post(path, {})
    shown = programs.operator.post(f"{path}?dry_run=true", {"reason": "wrong data"})
    done = programs.operator.post(path, {"reason": "wrong data"})

    assert (without.status_code, shown.status_code, done.status_code) == (422, 200, 200)
    assert (done.json()["action"], done.json()["total"]) == ("discard", 1)
    assert programs.reader.get("/dead-letters").json()["items"][0]["open"] == 0


def test_a_stopped_replay_continues(programs, known) -> None:
    run = Run.objects.create(
        group="export", action="replay", target="retry", rate=1, total=1, state=State.STOPPED
    )
    place = {"broker_name": "broker-a", "queue_id": 0, "queue_offset": 0, "commit_log_offset": 0}
    Item.objects.create(run=run, group="export", **place)

    done = programs.operator.post(f"/replays/{run.pk}/resume")
    again = programs.operator.post(f"/replays/{run.pk}/resume")

    assert (done.status_code, again.status_code) == (200, 409)
    assert done.json()["state"] == "running"


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_dead_letters_and_messages_can_be_downloaded(kind, programs, known) -> None:
    letters = programs.admin.get(f"/dead-letters/billing/export/{kind}")
    messages = programs.admin.get(f"/messages/export/{kind}?topic=Orders&range=1h")

    assert letters.status_code == messages.status_code == 200
    assert letters.content
    assert {each.action for each in Entry.objects.all()} == {"dead-letter.export", "message.export"}
    assert programs.operator.get(f"/dead-letters/billing/export/{kind}").status_code == 403


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/messages", {"topic": "Orders"}),
        ("/dead-letters/billing/replays", {"target": "retry", "rate": 1}),
        ("/dead-letters/billing/discards", {"reason": "x"}),
    ],
)
def test_a_viewer_sends_nothing(path, body, programs, known) -> None:
    assert programs.reader.post(path, body).status_code == 403
    assert not Entry.objects.exclude(outcome="refused").exists()
