"""Masking: rules hide values wherever bodies are shown, until an authorized user reveals them."""

from __future__ import annotations

import json
from dataclasses import replace

import duckdb
import pytest
from django.urls import reverse

from analytics.lake.masks import Mask, add_hiding, masked_columns
from console.accounts.actions import Action
from console.accounts.models import CustomRole
from console.gateway.access import gateway
from console.lib.stored import BrokerQueue
from console.people.audit.models import Entry
from console.people.masking.engine import MASK, mask
from console.people.masking.models import MaskingRule

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("brokers")]

CARD, CARDS = "4111111111111111", "4111[0-9]{12}"
PEOPLE = '[{"name": "Ann"}, {"name": "Bo"}]'
BODY = f'{{"id": 12345678901234567890, "card": "{CARD}", "who": {PEOPLE}}}'
PLACE = ["broker-a", 0, 0, "Orders"]
PAGE, UNMASK = reverse("browse:message", args=PLACE), reverse("browse:unmask", args=PLACE)


def rule(kind: str = "pattern", what: str = CARDS, topics: str = "*") -> MaskingRule:
    return MaskingRule.objects.create(name=what, topics=topics.split(), kind=kind, what=what)


@pytest.fixture
def orders(brokers):
    brokers.add_topic("Orders")
    brokers.put_message("Orders", 0, BODY.encode(), 1_000, KEYS="K-1", iban="DE" + CARD)
    return brokers


@pytest.fixture
def message(orders):
    found = gateway().browse.at("Orders", BrokerQueue("broker-a", 0), 0)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("kind", "what", "after"),
    [
        ("pattern", CARDS, BODY.replace(CARD, MASK)),
        ("path", "$.card", BODY.replace(CARD, MASK)),
        ("path", "who[*].name", BODY.replace("Ann", MASK).replace("Bo", MASK)),
        ("path", "$.who[1]", BODY.replace('{"name": "Bo"}', f'"{MASK}"')),
        ("path", "$.nothing", BODY),
        ("property", "iban", BODY),
    ],
)
def test_a_rule_hides_its_fields_and_keeps_every_other_digit(kind, what, after, message) -> None:
    seen = mask(message, [rule(kind, what)])

    assert seen.body is not None
    assert json.loads(seen.body) == json.loads(after)
    if kind == "path" and "nothing" not in what:
        assert b"12345678901234567890" in seen.body


@pytest.mark.parametrize(
    ("kind", "what", "value"),
    [
        ("pattern", CARDS, "DE***"),
        ("property", "iban", MASK),
        ("property", "other", "DE" + CARD),
        ("path", "$.iban", "DE" + CARD),
    ],
)
def test_properties_are_masked_by_pattern_and_by_name_but_never_rocketmqs_own(
    kind, what, value, message
) -> None:
    others = ("iban", message.properties["iban"]), ("note", "")
    seen = mask(
        replace(message, other_properties=others), [rule(kind, what), rule("pattern", "K-1")]
    )

    assert seen.properties["iban"] == value
    assert seen.other_properties == (("iban", value), ("note", ""))
    assert seen.keys == "K-1"


@pytest.mark.parametrize("kind", ["pattern", "path"])
def test_a_body_too_complex_for_a_rule_is_hidden_as_a_whole(kind, message) -> None:
    found = rule(kind, CARDS if kind == "pattern" else "$.card")

    binary = mask(replace(message, body=b"\xff\xfe" + CARD.encode()), [found])
    cut = mask(replace(message, body=b"x" * 3_000 + CARD[:15].encode(), is_cut=True), [found])

    assert binary.body == MASK.encode()
    assert cut.body == (b"x" * 1_991 if kind == "pattern" else MASK.encode())
    assert found.name in cut.masked_by


PHONES = r"[+]49[0-9]+"


@pytest.mark.parametrize(
    ("body", "after"),
    [
        (r'{"phone": "\u002B49170", "id": 1}', '{"phone": "***", "id": 1}'),
        (r'{"phone": "\u002b\u0034\u0039\u00317"}', '{"phone": "***"}'),
        (r'{"a": "\/+49170\/", "b": "c\"d"}', r'{"a": "\/***\/", "b": "c\"d"}'),
        # JSON in a string of JSON, and a URL in that.
        (r'{"inner": "{\"phone\": \"\\u002B49170\"}"}', r'{"inner": "{\"phone\": \"***\"}"}'),
        (r'{"url": "https:\/\/a\/?p=%2B49170&q=1"}', r'{"url": "https:\/\/a\/?p=***&q=1"}'),
        # JSON lines, and truncated JSON.
        ('{"p": "\\u002B491"}\n{"p": "\\u002B492"}', '{"p": "***"}\n{"p": "***"}'),
        (r'{"p": "\u002B49170', '{"p": "***'),
        ("name=x&phone=%2B49%31", "name=x&phone=***"),
        ("<phone>&#43;49170</phone>", "<phone>***</phone>"),
        ("<phone>&#x2B;&#52;&#57;170</phone>", "<phone>***</phone>"),
        ("phone =2B49170", "phone ***"),
        (r"phone \x2B49170", "phone ***"),
        (r"C:\temp\new", r"C:\temp\new"),
        ('{"name": "\\u4e2d\\u6587"}', '{"name": "\\u4e2d\\u6587"}'),
    ],
)
def test_a_pattern_finds_escaped_text_and_leaves_the_rest_unchanged(body, after, message) -> None:
    seen = mask(replace(message, body=body.encode()), [rule("pattern", PHONES)])

    assert seen.body == after.encode()


@pytest.mark.parametrize("value", ["%2B49170", r"\u002B49170", "&plus;49170", "+49170"])
def test_a_pattern_finds_escapes_in_properties(value, message) -> None:
    properties = {"contact": f"call {value} now", "KEYS": value}

    seen = mask(replace(message, properties=properties), [rule("pattern", PHONES)])

    assert seen.properties == {"contact": "call *** now", "KEYS": value}


@pytest.mark.parametrize(
    ("what", "body", "after"),
    [
        ("^4111[0-9]+$", '{"a": "41112", "b": "x41112"}', '{"a": "***", "b": "x41112"}'),
        ("^4111[0-9]+$", '{"a": 41112, "b": [41113]}', '{"a": ***, "b": [***]}'),
        (r"\A4111", r'{"a": "4111", "b": "\u0034111"}', '{"a": "***", "b": "***"}'),
        ("4111$", '{"a": "14111 ", "b": "14111"}', '{"a": "14111 ", "b": "1***"}'),
        ("^4111", "4111 and 4111", "*** and 4111"),
        (r"[^4]\$", '{"a": "5$"}', '{"a": "***"}'),
    ],
)
def test_a_pattern_with_anchors_matches_whole_json_values(what, body, after, message) -> None:
    seen = mask(replace(message, body=body.encode()), [rule("pattern", what)])

    assert seen.body == after.encode()


@pytest.mark.parametrize(("kind", "what"), [("pattern", PHONES), ("path", "$.ssn")])
def test_data_nested_too_deep_for_a_rule_is_hidden_as_a_whole(kind, what, message) -> None:
    deep = '{"ssn": "+491", "a": ' * 600 + "1" + "}" * 600
    escaped = "\\" * 64 + "u002B491"
    found = rule(kind, what)

    bodies = [mask(replace(message, body=b.encode()), [found]).body for b in (deep, escaped)]

    if kind == "path":
        assert bodies == [MASK.encode(), MASK.encode()]
    else:
        assert b"+491" not in (bodies[0] or b"")
        assert bodies[1] == MASK.encode()


@pytest.mark.parametrize(
    ("topic", "properties", "is_hidden"),
    [
        ("Orders", {}, True),
        ("Bills", {}, False),
        ("%DLQ%billing", {"RETRY_TOPIC": "Orders"}, True),
        ("SCHEDULE_TOPIC_XXXX", {"REAL_TOPIC": "Orders"}, True),
        ("%DLQ%billing", {"RETRY_TOPIC": "Bills"}, False),
    ],
)
def test_a_message_is_masked_wherever_it_came_from(topic, properties, is_hidden, message) -> None:
    found = replace(message, topic=topic, properties={**message.properties, **properties})

    assert bool(mask(found, [rule(topics="Ord*")]).masked_by) is is_hidden


def everywhere(client) -> dict[str, str]:
    """Return the message as shown on pages and in files."""
    fields = {"topic": "Orders", "from": "0", "to": "2000"}
    export = reverse("browse:export", args=["jsonl"])
    answers = {
        "page": client.get(PAGE),
        "tree": client.get(PAGE, {"as": "tree"}),
        "bytes": client.get(PAGE, {"as": "bytes"}),
        "column": client.get(reverse("browse:search"), {**fields, "field": "$.card"}),
        "export": client.post(f"{export}?topic=Orders&from=0&to=2000"),
    }
    return {name: each.getvalue().decode() for name, each in answers.items()}


def test_masked_data_is_not_shown_anywhere_even_to_administrators(actors, orders) -> None:
    assert all(CARD in text for name, text in everywhere(actors.admin).items() if name != "bytes")

    rule()

    found = everywhere(actors.admin)
    assert [name for name, text in found.items() if CARD in text] == []
    assert all(MASK in text for name, text in found.items() if name != "bytes")
    assert f"Masked by {CARDS}" in found["page"]


def test_guessing_does_not_find_masked_data(actors, orders) -> None:
    fields = {"topic": "Orders", "from": "0", "to": "2000"}
    for condition in ({"text": CARD}, {"path": "$.card", "value": CARD}):
        assert "K-1" in actors.admin.get(reverse("browse:search"), fields | condition).text
    rule()

    for condition in ({"text": CARD}, {"path": "$.card", "value": CARD}):
        assert "K-1" not in actors.admin.get(reverse("browse:search"), fields | condition).text


def test_dead_letters_are_exported_masked(actors, brokers) -> None:
    brokers.add_group("billing")
    brokers.add_topic("%DLQ%billing", queue_nums=1)
    brokers.put_message("%DLQ%billing", 0, BODY.encode(), 1_000, RETRY_TOPIC="Orders")
    rule(topics="Orders")

    answer = actors.admin.post(reverse("dead_letters:export", args=["billing", "jsonl"]))

    assert MASK in answer.content.decode()
    assert CARD not in answer.content.decode()


def test_unmasking_one_message_needs_permission_and_is_audited(
    actors, limited, limited_account, orders
) -> None:
    rule()
    role = CustomRole.objects.create(
        name="support", actions=["message.see", "message.read"], topics=["Orders"]
    )
    role.members.add(limited_account)
    assert limited.post(UNMASK).status_code == 403
    assert "Unmask" not in limited.get(PAGE).content.decode()

    role.actions = [*role.actions, Action.UNMASK.value]
    role.save()
    html = limited.post(UNMASK).content.decode()

    assert CARD in html
    assert CARD not in limited.get(PAGE).content.decode()
    entry = Entry.objects.get(action="message.unmask")
    assert (entry.actor_name, entry.subject) == ("leo", "Orders")
    assert entry.after == {"queue": "broker-a:0", "offset": "0", "rules": [CARDS]}
    assert CARD not in str(Entry.objects.values())


def test_a_masked_message_is_resent_whole_by_users_who_may_unmask_it(
    actors, limited, limited_account, orders
) -> None:
    rule()
    role = CustomRole.objects.create(
        name="support",
        actions=["message.see", "message.read", "message.send"],
        topics=["Orders"],
    )
    role.members.add(limited_account)
    fields = {"topic": "Orders", "copy": "broker-a:0:0"}

    refused = limited.get(reverse("sending:send"), fields)
    filled = actors.admin.get(reverse("sending:send"), fields).content.decode()

    assert refused.status_code == 403
    assert CARD in filled
    assert Entry.objects.filter(action="message.unmask", actor_name="ada").count() == 1


FORM = {"name": "cards", "topics": "orders-*", "kind": "pattern", "what": "[0-9]{16}"}


def test_a_rule_is_tried_before_it_is_saved(actors) -> None:
    page = reverse("masking:create")

    tried = actors.admin.post(page, {**FORM, "try": "on", "sample": f"card {CARD}."})
    assert "card ***." in tried.content.decode()
    assert not MaskingRule.objects.exists()

    actors.admin.post(page, FORM)
    kept = MaskingRule.objects.get()
    assert (kept.name, kept.topics) == ("cards", ["orders-*"])


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"what": "(?=x)"}, "a valid pattern"),
        ({"what": "[0-9]*"}, "also matches empty text"),
        ({"kind": "path", "what": "a[["}, "a valid JSON path"),
        ({"kind": "property", "what": "KEYS"}, "own properties"),
        ({"topics": ""}, "This field is required"),
    ],
)
def test_an_invalid_rule_is_rejected_in_the_form(wrong, sentence, actors) -> None:
    answer = actors.admin.post(reverse("masking:create"), {**FORM, **wrong})

    assert answer.status_code == 422
    assert sentence in answer.content.decode()
    assert not MaskingRule.objects.exists()


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("pattern", CARDS),
        ("pattern", "x+"),
        ("pattern", "(?i)ann|BO"),
        ("pattern", "^.*$"),
        ("pattern", "a.b"),
        ("pattern", r"\d+\n"),
        ("pattern", "'; --"),
        ("pattern", "[+]49[0-9]+"),
        ("pattern", "^4111[0-9]*$"),
        ("pattern", r"\ABo\z"),
        ("pattern", "é|[^\\x00-\\x7F]+"),
        ("property", "iban"),
        ("property", "it's"),
        ("property", "KEYS"),
    ],
)
def test_sql_hides_the_same_data_as_pages(kind, what, message) -> None:
    """Both follow the same rules, one in SQL and one in Python."""
    properties = {
        "phone": "%2B49170",
        "iban": "DE" + CARD,
        "it's": "a\nb",
        "KEYS": CARD,
        "REAL_TOPIC": "elsewhere",
    }
    bodies = [BODY.encode(), "a\nb 12\nxx é '; --".encode(), b"", b"4111", b"\xff" + CARD.encode()]
    bodies += [rb'{"a": "\u002B491", "b": "\u0034111", "c": ["Bo"]}', b"p=%2B491&x", b"&#43;49170"]
    bodies += [rb'{"in": "{\"p\": \"\\u002B491\"}"}', b"\\" * 64 + b"u002B491"]
    shape = "'Orders' AS topic, 0 AS sys_flag, 1 AS body_crc, $1::BLOB AS body, "
    shape += "map($2, $3) AS properties"
    with duckdb.connect() as connection:
        add_hiding(connection)
        for topics in ("Orders", "Ord?rs", "*", "other O*", "elsewh*", "[O]rders"):
            one = MaskingRule(name="one", topics=topics.split(), kind=kind, what=what)
            columns = masked_columns([Mask.of(one.as_kept)])
            for body in bodies:
                rows = connection.execute(
                    f"SELECT {columns['body']}, {columns['properties']} "
                    f"FROM (SELECT {shape}) AS found",
                    [body, list(properties), list(properties.values())],
                )
                seen = mask(replace(message, body=body, properties=properties), [one])
                assert rows.fetchall() == [(seen.body, dict(seen.properties))], (topics, body)
