"""Messages sent by users: the form, the result, transactions, one client."""

from __future__ import annotations

import base64

import pytest
from django.urls import reverse

from console.gateway.answers import Member, TopicQueue
from console.gateway.errors import BrokerDownError
from console.gateway.fakes.sending import FakeSending
from console.gateway.outgoing import Sending
from console.lib.moment import now_ms
from console.messages.sending.forms import chosen
from console.messages.sending.models import HalfMessage, LastSent
from console.messages.sending.template import filled
from console.people.audit.models import Entry

pytestmark = pytest.mark.django_db

SEND = "/messages/send/"
FORM: dict[str, object] = {
    "topic": "Orders",
    "body": '{"order": ${n}}',
    "encoding": "text",
    "tag": "paid",
    "keys": "order-${n} all",
    "properties": "region=eu\nsource = shop=${n}",
    "delay_level": 0,
    "count": 1,
}


@pytest.fixture
def orders(brokers):
    brokers.add_topic("Orders", queue_nums=3)
    return brokers


def stored(brokers, topic: str = "Orders") -> list[tuple[int, bytes, dict[str, str]]]:
    """Return queue, body and properties of all messages."""
    return [
        (queue_id, content.body, content.properties)
        for (name, queue_id, _offset), content in brokers.contents.items()
        if name == topic
    ]


def test_a_message_has_the_values_from_the_form(actors, orders) -> None:
    answer = actors.operator.post(SEND, FORM)

    ((_queue, body, carried),) = stored(orders)
    assert answer["location"] == f"{SEND}?topic=Orders"
    assert body == b'{"order": 1}'
    assert carried["KEYS"] == "order-1 all"
    assert (carried["TAGS"], carried["region"], carried["source"]) == ("paid", "eu", "shop=1")
    assert "DELAY" not in carried


def test_each_of_many_messages_has_its_number_and_queues_take_turns(actors, orders) -> None:
    actors.operator.post(SEND, FORM | {"count": 6})

    found = stored(orders)
    assert [body for _queue, body, _ in found] == [b'{"order": %d}' % n for n in range(1, 7)]
    assert sorted(queue for queue, _body, _ in found) == [0, 0, 1, 1, 2, 2]
    assert [carried["KEYS"] for _q, _b, carried in found][5] == "order-6 all"


def test_an_ordering_key_chooses_one_queue_and_a_named_queue_is_used(actors, orders) -> None:
    actors.operator.post(SEND, FORM | {"count": 4, "order_key": "customer-7"})
    assert {queue for queue, _body, _ in stored(orders)} == {chosen("customer-7", 3)}

    orders.contents.clear()
    actors.operator.post(SEND, FORM | {"queue": "broker-a:2", "delay_level": 3})
    ((queue, _body, carried),) = stored(orders)
    assert (queue, carried["DELAY"]) == (2, "3")


@pytest.mark.parametrize(
    ("text", "count", "queue"),
    # Math.abs("…".hashCode() % count) of Java.
    [
        ("a", 4, 1),
        ("hello", 8, 2),
        ("polygenelubricants", 8, 0),
        ("polygenelubricants", 3, 2),
        ("", 5, 0),
    ],
)
def test_the_queue_equals_the_java_clients_choice(text, count, queue) -> None:
    assert chosen(text, count) == queue


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"topic": "Nowhere"}, "No broker has this topic"),
        ({"topic": "RMQ_SYS_X"}, "No broker has this topic"),
        ({"topic": "%DLQ%billing"}, "reserved for internal use"),
        ({"topic": "ReadOnly"}, "read-only and"),
        ({"properties": "no equals sign"}, "Enter each line as name=value"),
        ({"properties": "UNIQ_KEY=1"}, "has its own field"),
        ({"properties": "a=\x01b"}, "They separate properties"),
        ({"properties": "a= \t"}, "Enter each line as name=value"),
        ({"properties": "a=b\0"}, "Null characters are not allowed"),
        ({"tag": "a\x02b"}, "They separate properties"),
        ({"keys": "a\x02KEYS\x01b"}, "They separate properties"),
        ({"properties": "a=" + "x" * 16_000, "keys": "k", "body": "x"}, ""),
        ({"encoding": "base64", "body": "not base64!"}, "valid Base64"),
        ({"count": 501}, "500"),
        ({"count": 2, "is_half": "on"}, "Only one message at a time"),
        ({"delay_level": 1, "is_half": "on"}, "A transactional message can"),
        ({"queue": "broker-a:3"}, "no write queue with this number"),
        ({"queue": "broker-a:0", "order_key": "k"}, "already determines the queue"),
        ({"body": "x" * 100_000, "count": 500}, "exceed 32 MiB in total"),
    ],
)
def test_an_unsendable_message_is_rejected_with_its_reason(change, words, actors, orders) -> None:
    orders.add_topic("%DLQ%billing")
    orders.add_topic("ReadOnly", perm=4)

    answer = actors.operator.post(SEND, FORM | change)

    if not words:
        assert answer.status_code == 302
        return
    assert words in answer.text
    assert orders.contents == {}
    assert not Entry.objects.exists()


def test_bytes_are_sent_unchanged(actors, orders) -> None:
    data = bytes(range(256))

    actors.operator.post(
        SEND, FORM | {"encoding": "base64", "body": base64.b64encode(data).decode()}
    )

    ((_queue, body, _carried),) = stored(orders)
    assert body == data


def test_only_known_placeholders_are_filled() -> None:
    assert filled('{"a": "$.b ${c} $$ ${n}"}', 7) == '{"a": "$.b ${c} $$ 7"}'
    assert filled("${uuid}", 1) != filled("${uuid}", 1)


def test_the_form_remembers_the_last_message_sent_to_each_topic(actors, orders) -> None:
    orders.add_topic("Other")
    actors.operator.post(SEND, FORM)
    actors.operator.post(SEND, FORM | {"topic": "Other", "body": "else"})

    mine = actors.operator.get(SEND, {"topic": "Orders"})
    others = actors.admin.get(SEND, {"topic": "Orders"})

    assert mine.context["form"]["body"].value() == FORM["body"]
    assert "Last sent to Orders" in mine.text
    assert reverse("browse:message", args=["broker-a", *map(int, place_of(mine)), "Orders"])
    assert not others.context["form"]["body"].value()


def place_of(answer) -> tuple[str, str]:
    ((_broker, queue_id, offset),) = answer.context["last"].places
    return queue_id, offset


def test_a_large_body_is_not_kept(actors, orders) -> None:
    actors.operator.post(SEND, FORM | {"body": "x" * 70_000})

    assert LastSent.objects.get().fields["body"] == ""
    assert len(stored(orders)[0][1]) == 70_000


def test_messages_sent_before_a_failure_are_reported_and_recorded(
    actors, orders, monkeypatch
) -> None:
    whole = FakeSending.send

    def half_way(self, outgoing):
        done = whole(self, outgoing[:2])
        return Sending(done.sent, BrokerDownError("127.0.0.1:10911", "no answer"))

    monkeypatch.setattr(FakeSending, "send", half_way)
    answer = actors.operator.post(SEND, FORM | {"count": 5}, follow=True)

    entry = Entry.objects.get()
    assert "2 of 5 messages sent." in answer.text
    assert "unknown whether the next message was stored." in answer.text
    assert (entry.action, entry.outcome, entry.after["sent"]) == ("message.send", "failed", 2)


def test_the_audit_log_records_a_send_but_not_its_body(actors, orders) -> None:
    actors.operator.post(SEND, FORM | {"body": "a secret"})

    entry = Entry.objects.get()
    assert (entry.subject, entry.after["bytes"], len(entry.after["ids"])) == ("Orders", 8, 1)
    assert "secret" not in str(entry.after)


@pytest.mark.parametrize(("outcome", "there"), [("commit", 1), ("rollback", 0)])
def test_a_transaction_waits_for_its_outcome(outcome, there, actors, orders) -> None:
    actors.operator.post(SEND, FORM | {"is_half": "on"})
    assert stored(orders) == []
    half = HalfMessage.objects.get()
    shown = actors.operator.get(SEND, {"topic": "Orders"}).text
    assert reverse("sending:end", args=[half.pk]) in shown

    actors.operator.post(reverse("sending:end", args=[half.pk]), {"outcome": outcome})

    assert len(stored(orders)) == there
    assert not HalfMessage.objects.exists()


def test_a_transaction_lost_by_the_broker_stays_until_it_is_forgotten(actors, orders) -> None:
    actors.operator.post(SEND, FORM | {"is_half": "on"})
    half = HalfMessage.objects.get()
    HalfMessage.objects.update(uniq_key="another")

    answer = actors.operator.post(
        reverse("sending:end", args=[half.pk]), {"outcome": "commit"}, follow=True
    )
    assert "no such half message" in answer.text
    assert HalfMessage.objects.exists()

    actors.operator.post(reverse("sending:forget", args=[half.pk]))
    assert not HalfMessage.objects.exists()


def test_a_message_is_resent_with_all_its_content_by_users_who_see_its_body(actors, orders) -> None:
    carried = {"KEYS": "k1", "TAGS": "paid", "UNIQ_KEY": "A", "region": "eu", "MIN_OFFSET": "0"}
    offset = orders.put_message("Orders", 1, b'{"n": 12345678901234567890}', now_ms(), **carried)
    raw = orders.put_message("Orders", 1, b"\x00\xff", now_ms())
    query = {"topic": "Orders", "copy": f"broker-a:1:{offset}"}

    form = actors.admin.get(SEND, query).context["form"].initial
    assert form["body"] == '{"n": 12345678901234567890}'
    assert (form["tag"], form["keys"], form["properties"]) == ("paid", "k1", "region=eu")
    binary = actors.admin.get(SEND, query | {"copy": f"broker-a:1:{raw}"}).context["form"].initial
    assert (binary["encoding"], binary["body"]) == ("base64", "AP8=")
    assert actors.operator.get(SEND, query).status_code == 403
    for nowhere in ("broker-a:1:99", "x", "broker-a:1:-1", "::"):
        assert actors.admin.get(SEND, query | {"copy": nowhere}).status_code == 404


@pytest.mark.parametrize("carried", [{"a": "b\nc=d"}, {"a": "b\n"}, {"a": " b"}, {"a=b": "c"}])
def test_a_message_that_the_form_cannot_show_exactly_is_not_copied(
    carried: dict[str, str], actors, orders
) -> None:
    offset = orders.put_message("Orders", 1, b"x", now_ms(), **carried)

    answer = actors.admin.get(SEND, {"topic": "Orders", "copy": f"broker-a:1:{offset}"})

    assert answer.status_code == 404
    assert "a property that contains a line break" in answer.text


def test_control_characters_within_a_value_are_sent_unchanged(actors, orders) -> None:
    actors.operator.post(SEND, FORM | {"properties": "a=x\x1dy=\x0bz\u2028\r\nb=c"})

    ((_queue, _body, carried),) = stored(orders)
    assert (carried["a"], carried["b"]) == ("x\x1dy=\x0bz\u2028", "c")


def test_a_message_is_handed_to_one_member_of_a_group(actors, orders) -> None:
    orders.add_group("billing", topic="Orders")
    orders.members["billing"] = [Member("c 1@x", "127.0.0.1:5", "JAVA", 407, ("broker-a",))]
    offset = orders.put_message("Orders", 0, b"{}", now_ms())
    place = ["broker-a", 0, offset, "Orders"]
    url = reverse("sending:deliver", args=place)
    page = actors.operator.get(reverse("browse:message", args=place)).text
    assert url in page
    assert url not in actors.reader.get(reverse("browse:message", args=place)).text

    good = actors.operator.post(url, {"member": "billing c 1@x"}, follow=True)
    gone = actors.operator.post(url, {"member": "billing other"}, follow=True)

    assert "c 1@x consumed the message (CR_SUCCESS, 3 ms)." in good.text
    assert "not online" in gone.text
    assert [group for group, _client, _id in orders.delivered] == ["billing"]
    assert sorted(Entry.objects.values_list("action", "outcome")) == [
        ("message.deliver", "done"),
        ("message.deliver", "failed"),
    ]
    assert orders.offsets == {}
    assert orders.queues[TopicQueue("Orders", 0)].max_offset == 1
