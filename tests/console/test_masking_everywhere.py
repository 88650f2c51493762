"""Masking, by construction: every page, operation and filter, with masked values.

Each address of the URLconf and each reading operation of the API is requested for messages with
masked values. Without the rules, those in SHOWN reveal the values; with them none does, and no
filter, sort or group answers a right guess differently from a wrong one.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, urlencode

import pytest
from django.urls import reverse

from broker_core.message import names
from console.accounts.scopes import every_scope
from console.api.operations import OPERATIONS
from console.gateway.answers import Subscription
from console.lib.content import Filter
from console.messages.browse.columns import COLUMNS
from console.messages.dead_letters.selection import Selection
from console.messages.tracing.filters import FIELDS
from console.messages.tracing.recorder import WORDS
from console.people.masking.models import MaskingRule
from tests.console import test_audit_coverage
from tests.console.api.conftest import Program
from tests.console.test_addresses import ALL, url_of
from tests.support.addresses import PAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.test import Client

pytestmark = [pytest.mark.django_db]

world = test_audit_coverage.world

CARD, PHONE, SSN, IBAN, SHARD = (
    "4111222233334444",
    "+49170555",
    "ssn-0815-4711",
    "DE02120300000000202051",
    "customer-77-shard",
)
HIDDEN = (CARD, PHONE, SSN, IBAN, SHARD)
# As in a real message; the phone number's plus is an escape.
BODY = json.dumps({"card": CARD, "ssn": SSN, "open": "visible text"})[:-1] + (
    ', "phone": "\\u002B49170555"}'
)
WRITTEN = (*HIDDEN, "002B49170555", "%2B49170555")
PROPERTIES = {"iban": IBAN, "__SHARDINGKEY": SHARD, "contact": "%2B49170555", "region": "eu-region"}
PROPERTIES |= {"KEYS": "K-1-key K-never-asked-for", "TAGS": "tag-of-one"}
TOPICS = ("Orders", "%DLQ%billing", "%RETRY%billing", names.RMQ_SYS_SCHEDULE_TOPIC)
QUERY = {"topic": "Orders", "from": "0", "to": "2000000"}

# Addresses that show a message's content without masking. A new address here is a new place where
# masking must work, and belongs in the list of docs/accounts.md.
SHOWN = {
    *("browse:message", "browse:search", "browse:scan", "browse:export", "dead_letters:export"),
    *("family:export", "sending:send"),
    *("message", "messages", "message_export", "message_find", "message_family"),
    *("dead_letters", "dead_letter_export"),
}
OF_MESSAGES = {"browse", "brokers", "dead_letters", "family", "sending", "topics", "tracing"}
"""Apps whose pages have search terms in their addresses."""
# Addresses that show unmasked messages to authorized users, and record it.
UNMASKING = {"browse:unmask", "message_unmask", "sending:send"}


@pytest.fixture
def messages(world: dict[str, str], brokers: Any) -> list[tuple[str, int]]:
    """The same message in each topic that a message passes through; topics and offsets."""
    made = []
    for topic in TOPICS:
        if topic not in brokers.topic_configs:
            brokers.add_topic(topic, queue_nums=4)
        for number in range(3):
            origin = {"RETRY_TOPIC": "Orders", "REAL_TOPIC": "Orders"} if topic != "Orders" else {}
            own = {
                "KEYS": "K-1-key",
                "TAGS": "tag-of-one",
                "UNIQ_KEY": f"U-{number}",
                **origin,
                **PROPERTIES,
            }
            made.append(
                (topic, brokers.put_message(topic, 0, BODY.encode(), 2_000 + number, **own))
            )
    return made


EVERY = {name for name, _parameters in ALL} | set(OPERATIONS)


def make_rules() -> None:
    for kind, what in (
        ("pattern", "[0-9]{16}"),
        ("pattern", r"\+49[0-9]+"),
        ("path", "$.ssn"),
        ("property", "iban"),
        ("property", "__SHARDINGKEY"),
    ):
        MaskingRule.objects.create(name=what, topics=["Orders"], kind=kind, what=what)


def places(messages: list[tuple[str, int]]) -> Iterator[dict[str, object]]:
    for topic, offset in dict(messages).items():
        yield {"broker_name": "broker-a", "queue_id": 0, "offset": offset, "topic": topic}


def urls_of(
    name: str, parameters: list[str], world: dict[str, str], messages: list[tuple[str, int]]
) -> Iterator[str]:
    """Yield the addresses under a name that may reveal a message."""
    if {"broker_name", "queue_id", "offset", "topic"} <= set(parameters):
        kinds = ("otlp", "jsonl") if "kind" in parameters else (None,)
        for place, kind in itertools.product(places(messages), kinds):
            yield reverse(name, kwargs=place | ({} if kind is None else {"kind": kind}))
    elif "kind" in parameters:
        for kind in ("csv", "jsonl"):
            given = {"group": "billing"} if "group" in parameters else {}
            if name in {"browse:export", "dead_letters:export", "audit:export"}:
                yield reverse(name, kwargs={"kind": kind, **given})
            else:
                yield world.get(name) or url_of(name, parameters)
    else:
        yield world.get(name) or url_of(name, parameters)


def queries_of(name: str) -> Iterator[str]:
    yield from (each.partition("{")[0] for each in PAGES.get(name, ("",)))
    if name.partition(":")[0] not in OF_MESSAGES:
        return
    if name in {"browse:message", "family:message"}:
        yield from ("?as=tree", "?as=text", "?as=bytes")
        return
    searched = "&".join(f"{key}={value}" for key, value in QUERY.items())
    yield f"?{searched}"
    yield f"?{searched}&field=$.card&field=$.ssn&field=$.phone"
    for by, text in (("key", "K-1-key"), ("key", "U-0"), ("id", "U-1")):
        yield f"?by={by}&text={text}&{searched}"


def body_of(answer: Any) -> str:
    body: bytes = b"".join(answer.streaming_content) if answer.streaming else answer.content
    # A page escapes some characters.
    text = body.decode(errors="replace").replace("&#x27;", "'").replace("&quot;", '"')
    return re.sub(r"  +[^ ]*$", "", text, flags=re.MULTILINE) if "0000  " in text else text


def tells(text: str) -> bool:
    return any(each in text or each.replace("+", "&#43;") in text for each in WRITTEN)


def pages_that_tell(
    client: Client,
    world: dict[str, str],
    messages: list[tuple[str, int]],
    among: set[str],
    tells: Callable[[str], bool] = tells,
) -> set[str]:
    found = set()
    for name, parameters in ALL:
        if name not in among:
            continue
        if name in UNMASKING - {"sending:send"} or name.startswith("accounts:"):
            continue
        for url in urls_of(name, parameters, world, messages):
            for query in dict.fromkeys(queries_of(name)):
                address = url + (query if "?" not in url else query.replace("?", "&"))
                method = client.post if name.endswith("export") and "kind" in parameters else None
                answers = [client.get(address), *([method(address)] if method else [])]
                if any(tells(body_of(each)) for each in answers):
                    found.add(name)
    return found


def operations_that_tell(
    program: Program,
    messages: list[tuple[str, int]],
    among: set[str],
    tells: Callable[[str], bool] = tells,
) -> set[str]:
    found = set()
    searched = "&".join(f"{key}={value}" for key, value in QUERY.items())
    for operation in OPERATIONS.values():
        if operation.method != "GET" or operation.name not in among:
            continue
        path = operation.shown_path.removeprefix("/api/v1")
        for place, kind in itertools.product(places(messages), ("jsonl", "csv")):
            values = {**place, "kind": kind, "group": "billing", "broker_id": 0, "level": 3}
            given = path.format_map(defaultdict(lambda: 1, values))
            by_key, by_id = f"{searched}&text=K-1-key&by=key", f"by=id&text=U-1&{searched}"
            queries = (searched, by_key, by_id) if operation.name == "message_find" else (searched,)
            for query in queries:
                if tells(body_of(program.get(f"{given}?{query}"))):
                    found.add(operation.name)
            if not {"offset", "kind"} & set(re.findall(r"{(\w+)}", path)):
                break
    return found


def test_no_page_or_operation_reveals_masked_data(
    actors, admin_account, world, messages, settings
) -> None:
    settings.TREBUCHET_API_REQUESTS_A_MINUTE = 100_000
    program = Program(admin_account, every_scope())
    copied = f"?topic=Orders&copy=broker-a:0:{messages[0][1]}"
    assert tells(body_of(actors.admin.get(reverse("sending:send") + copied)))
    before = pages_that_tell(actors.admin, world, messages, EVERY)
    before |= operations_that_tell(program, messages, EVERY)

    make_rules()

    assert pages_that_tell(actors.admin, world, messages, before) == set()
    assert operations_that_tell(program, messages, before) == set()
    assert before == SHOWN - {"sending:send"}


# Every field by which users search, filter and follow messages: a right guess of the masked value,
# and a wrong one. None for a field that no rule masks: RocketMQ's own, locations and times.
GUESSES: dict[str, tuple[str, str] | None] = {
    "text": (CARD, "4111222233334445"),
    "value": (SSN, "ssn-0815-4712"),
    "equals": (IBAN, "DE02120300000000202052"),
    # A path and a property are combined with a value above; alone they only test for existence.
    "path": None,
    "name": None,
    "tag": None,
    "key": None,
    "client": None,
}
ASKED_WITH = {"value": {"path": "$.ssn"}, "equals": {"name": "iban"}}
MORE_GUESSES = [
    {"text": ("002B49170555", "002B49170556")},
    {"text": ("170555", "170556")},
    {"path": ("$.phone", "$.phone"), "value": (PHONE, "+49170556")},
    {"name": ("__SHARDINGKEY", "__SHARDINGKEY"), "equals": (SHARD, "customer-78-shard")},
    {"name": ("contact", "contact"), "equals": ("%2B49170555", "%2B49170556")},
]
# For the live view: the property is rejected, as test_tracing_socket.py tests for each kind of
# rule.
LIVE = {
    *("type", "round", "topic", "group", "tag", "key", "client", "stages", "errorsOnly"),
    *("minLatencyMs", "minLatencyUs", "minTotalMs", "sample", "rate", "message"),
}


def test_every_filter_on_messages_is_tried_with_a_guess() -> None:
    assert set(Filter._fields) == set(GUESSES)
    assert set(FIELDS) - LIVE == {"property"}
    assert set(WORDS) <= LIVE
    assert set(Selection.__dataclass_fields__) == {"ticked", "topic", "tag", "before"}
    # No list of messages is sorted by content, and only paths add columns.
    assert not any(each.is_sorted for each in COLUMNS)


def steady(text: str) -> str:
    """Return a page without parts that differ at each load: times, rates, the form's token."""
    words = re.sub(r"\d{13}|[A-Za-z0-9]{64}|\d\d:\d\d(:[0-9.]+)?|[0-9,]+ msg/s", "", text)
    return re.sub(r'(class="muted">)[^<]*', r"\1", words)


def guesses() -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    for field, pair in GUESSES.items():
        if pair is not None:
            beside = ASKED_WITH.get(field, {})
            yield {**beside, field: pair[0]}, {**beside, field: pair[1]}
    for each in MORE_GUESSES:
        yield {k: v[0] for k, v in each.items()}, {k: v[1] for k, v in each.items()}


def answers_to(guess: dict[str, str], client: Client, program: Program) -> list[str]:
    """Return the answers of everything with a filter, without the guess itself."""
    requests = {**QUERY, **guess}
    pages = ("browse:search", "browse:scan", "browse:distribution")
    found = [body_of(client.get(reverse(name), requests)) for name in pages]
    query = urlencode(requests)
    for kind in ("csv", "jsonl"):
        export = reverse("browse:export", args=[kind])
        found.append(body_of(client.post(f"{export}?{query}")))
        found.append(body_of(program.get(f"/messages/export/{kind}?{query}")))
    found += [
        body_of(program.get(f"/messages?{query}")),
        body_of(program.get(f"/messages/distribution?{query}")),
    ]
    texts = []
    for text in found:
        for value in guess.values():
            for way in (quote_plus(value), value, value.replace("+", "&#43;")):
                text = text.replace(way, "")
        texts.append(steady(text))
    return texts


def test_a_correct_guess_of_masked_data_is_answered_like_a_wrong_one(
    actors, admin_account, messages, settings
) -> None:
    settings.TREBUCHET_API_REQUESTS_A_MINUTE = 100_000
    program = Program(admin_account, every_scope())
    for right, wrong in guesses():
        assert answers_to(right, actors.admin, program) != answers_to(wrong, actors.admin, program)

    make_rules()

    for right, wrong in guesses():
        report = answers_to(right, actors.admin, program)
        other = answers_to(wrong, actors.admin, program)
        for one, two in zip(report, other, strict=True):
            assert one == two, right


def test_a_groups_sql_expression_does_not_reveal_its_content(actors, messages, brokers) -> None:
    """Whether a group's filter matched a message isn't shown for a masked property."""
    brokers.add_group("fraud-check")
    brokers.offsets["fraud-check", "Orders", 0] = messages[2][1] + 1
    topic, offset = messages[6]
    page = reverse("family:message", args=["broker-a", 0, offset, topic])

    def page_for(value: str) -> str:
        subscription = Subscription("Orders", "SQL92", f"iban = '{value}'")
        brokers.subscriptions["fraud-check"] = [subscription]
        return steady(body_of(actors.admin.get(page)).replace(value, ""))

    wrong = "DE02120300000000202052"
    assert page_for(IBAN) != page_for(wrong)
    make_rules()
    assert page_for(IBAN) == page_for(wrong)


def test_a_user_without_message_permission_learns_nothing_that_only_messages_reveal(
    limited, limited_account, world, messages, settings
) -> None:
    """No key, tag, property or body, on any page and by any operation; names and figures stay."""
    settings.TREBUCHET_API_REQUESTS_A_MINUTE = 100_000

    def tells(text: str) -> bool:
        return any(
            each in text
            for each in ("K-never-asked-for", "tag-of-one", "eu-region", "visible text")
        )

    program = Program(limited_account, every_scope())
    assert pages_that_tell(limited, world, messages, EVERY, tells) == set()
    assert operations_that_tell(program, messages, EVERY, tells) == set()


def test_a_user_without_body_permission_sees_messages_without_bodies(
    actors, reader_account, world, messages, settings
) -> None:
    settings.TREBUCHET_API_REQUESTS_A_MINUTE = 100_000

    def tells(text: str) -> bool:
        return '"visible' in text or "&quot;visible" in text

    program = Program(reader_account, every_scope())
    assert pages_that_tell(actors.reader, world, messages, SHOWN, tells) == set()
    assert operations_that_tell(program, messages, SHOWN, tells) == set()
