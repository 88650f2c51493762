"""The guard in front of the brokers: every call has a rule or is unrestricted."""

from __future__ import annotations

import dataclasses

import pytest
from django.contrib.auth.models import AnonymousUser

from console.accounts.actions import Action
from console.accounts.rights import (
    NOTHING,
    NotAllowedError,
    Patterns,
    Rights,
    acts_for,
    rights_of,
)
from console.gateway import ports
from console.gateway.access import gateway
from console.gateway.answers import TopicConfig
from console.gateway.guarding import FREE, RULES
from console.lib.stored import BrokerQueue, MessageRange

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("brokers")]

# The first is only changed by administrators' pages; the others have no user.
WITHOUT_PEOPLE = {"cluster", "samples", "messages", "watch"}


def test_every_call_that_reaches_a_broker_has_a_rule_or_needs_none() -> None:
    ways = {each.name: each.type for each in dataclasses.fields(ports.Gateway)}
    assert set(RULES) == set(FREE) == set(ways) - WITHOUT_PEOPLE
    for way, protocol in ways.items():
        if way in WITHOUT_PEOPLE:
            continue
        calls = {name for name in vars(getattr(ports, str(protocol))) if not name.startswith("_")}
        assert set(RULES[way]) | FREE[way] == calls
        assert not set(RULES[way]) & FREE[way]


def test_anonymous_requests_change_nothing_but_the_consoles_own_work_does(brokers) -> None:
    with acts_for(lambda: NOTHING), pytest.raises(NotAllowedError):
        gateway().topics.save(TopicConfig("New", 4, 4, 6), ["broker-a"])
    assert "New" not in brokers.topic_configs

    gateway().topics.save(TopicConfig("New", 4, 4, 6), ["broker-a"])
    assert "New" in brokers.topic_configs


def test_without_the_read_permission_messages_are_shown_without_bodies(brokers) -> None:
    brokers.add_topic("Orders")
    brokers.put_message("Orders", 0, b"secret", 1_000, KEYS="K-1")
    seen = Rights(given={Action.SEE: Patterns(topics=frozenset({"Ord*"}))})
    queue = BrokerQueue("broker-a", 0)
    request = MessageRange("Orders", 0, 2_000)

    with acts_for(lambda: seen):
        at = gateway().browse.at("Orders", queue, 0)
        newest = gateway().browse.newest(request, None, 10).messages
        keyed = gateway().browse.by_key("Orders", "K-1", 0, 2_000).messages
        (copy,) = gateway().repair.copies("Orders", queue, 0, 1).messages

    assert at is not None
    assert {each.body for each in (at, *newest, *keyed, copy.stored)} == {None}
    assert copy.body == b""
    assert at.keys == "K-1"


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        ("orders", "orders", True),
        ("orders", "orders2", False),
        ("orders*", "orders", True),
        ("o?ders", "orders", True),
        ("o?ders", "oders", False),
        ("Orders", "orders", False),
        ("a.b", "axb", False),
        ("*", "anything", True),
    ],
)
def test_a_pattern_is_the_name_with_a_star_for_any_text(pattern, name, is_match) -> None:
    rights = Rights(given={Action.SEND: Patterns(topics=frozenset({pattern}))})

    assert rights.may(Action.SEND, name) is is_match


def test_retries_and_dead_letters_belong_to_their_group() -> None:
    rights = Rights(given={Action.READ: Patterns(frozenset({"*"}), frozenset({"billing"}))})

    assert rights.may(Action.READ, "%DLQ%billing")
    assert rights.may(Action.READ, "%RETRY%billing")
    assert not rights.may(Action.READ, "%DLQ%audit")


def test_a_stranger_and_a_disabled_user_have_no_permissions(reader_account) -> None:
    reader_account.is_active = False

    assert rights_of(AnonymousUser()) is NOTHING
    assert rights_of(reader_account) is NOTHING
