from __future__ import annotations

from typing import Any

import pytest

from broker_core.access.account import Account, Permission, build_account, check_resources

PUB, SUB = Permission.PUB, Permission.SUB


def account(**changes: Any) -> Account:
    return build_account({"accessKey": "RocketMQ", "secretKey": "12345678", **changes})


def test_permissions_are_by_resource_then_by_default() -> None:
    one = account(
        topicPerms=["A=DENY", "B=PUB|SUB", "C=SUB"],
        groupPerms=["G=SUB", "H=DENY"],
        defaultTopicPerm="PUB",
        defaultGroupPerm="SUB",
    )

    assert [one.may(PUB, topic) for topic in "ABCD"] == [False, True, False, True]
    assert [one.may(SUB, topic) for topic in "ABCD"] == [False, True, True, False]
    assert [one.may(SUB, f"%RETRY%{group}") for group in "GHI"] == [True, False, True]


def test_nothing_is_allowed_that_is_not_granted() -> None:
    one = account()

    assert not one.may(PUB, "T")
    assert not one.may(SUB, "%RETRY%G")


@pytest.mark.parametrize("word", ["", "pub", "ALL", "PUB,SUB", None])
def test_an_unknown_word_denies(word: str | None) -> None:
    assert not account(defaultTopicPerm=word).may(PUB, "T")


def test_an_administrator_may_do_everything_unless_permissions_are_listed() -> None:
    assert account(admin=True).may(PUB, "T")
    assert account(admin="true").may(SUB, "%RETRY%G")
    assert not account(admin=True, topicPerms=["A=SUB"]).may(PUB, "T")


def test_a_default_permission_leaves_out_the_topics_of_the_broker() -> None:
    topic = "SCHEDULE_TOPIC_XXXX"

    assert not account(defaultTopicPerm="PUB|SUB").may(SUB, topic)
    assert account(topicPerms=[f"{topic}=SUB"]).may(SUB, topic)
    assert account(admin=True).may(SUB, topic)
    assert account(admin=True, topicPerms=["A=SUB"], defaultTopicPerm="SUB").may(SUB, topic)


def test_keys_of_digits_need_no_quotes() -> None:
    one = build_account({"accessKey": 1234567, "secretKey": 12345678})

    assert (one.access_key, one.secret_key) == ("1234567", "12345678")


@pytest.mark.parametrize(
    "changes",
    [
        {"accessKey": "short6"},
        {"secretKey": "short6"},
        {"accessKey": None},
        {"secretKey": None},
        {"topicPerms": ["A"]},
        {"groupPerms": ["A=SUB=PUB"]},
        {"topicPerms": "A=SUB"},
        {"whiteRemoteAddress": "nowhere"},
    ],
)
def test_invalid_input_is_rejected_without_revealing_the_secret(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"A|accessKey|nowhere|topicPerms") as caught:
        account(**changes)

    assert "12345678" not in str(caught.value)
    assert str(changes.get("secretKey")) not in str(caught.value).replace("None", "")


def test_a_change_over_the_wire_may_only_use_known_keys() -> None:
    check_resources(["A=DENY", "B=SUB|PUB"])

    with pytest.raises(ValueError, match="The expected permissions are"):
        check_resources(["A=ALL"])


def test_a_secret_is_not_in_the_text_of_an_account() -> None:
    assert "12345678" not in repr(account())
