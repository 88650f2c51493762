from __future__ import annotations

from broker_core.delivery.tag_filter import TagFilter
from broker_core.message.subscription import build_subscription
from broker_core.message.tags import java_hash


def test_everything_needs_no_filter() -> None:
    assert TagFilter.of(build_subscription("T", "*", 1)) is None
    assert TagFilter.of(build_subscription("T", "", 1)) is None


def test_a_tag_is_matched_by_its_hash() -> None:
    tag_filter = TagFilter.of(build_subscription("T", "TagA || TagC", 1))

    assert tag_filter is not None
    assert tag_filter.by_tags_code(java_hash("TagA"))
    assert not tag_filter.by_tags_code(java_hash("TagB"))
    assert not tag_filter.by_tags_code(0)


def test_hashes_are_recomputed_for_clients_that_hash_otherwise() -> None:
    subscription = build_subscription("T", "订单", 1)
    subscription.code_set = [-1782228175]

    tag_filter = TagFilter.of(subscription)

    assert tag_filter is not None
    assert tag_filter.by_tags_code(1129459)


def test_an_expression_without_a_tag_matches_nothing() -> None:
    subscription = build_subscription("T", "A", 1)
    subscription.sub_string = "||"

    tag_filter = TagFilter.of(subscription)

    assert tag_filter is not None
    assert not tag_filter.by_tags_code(0)
