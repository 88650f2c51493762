"""A consumer group's configuration, subscribed topics and tag expressions.

The JSON structs have their fields in the alphabetical order of the keys, as fastjson writes them.

Source: common/subscription/SubscriptionGroupConfig.java,
common/protocol/heartbeat/SubscriptionData.java, common/filter/FilterAPI.java (4.9.7).
"""

from __future__ import annotations

import msgspec

from broker_core.message.tags import java_hash

SUB_ALL = "*"
EXPRESSION_TYPE_TAG = "TAG"
EXPRESSION_TYPE_SQL92 = "SQL92"
_NO_CODES: list[int] = []
_NO_TAGS: list[str] = []
# Shared by most subscriptions, to avoid creating these two lists for each.


class SubscriptionGroupConfig(msgspec.Struct, rename="camel", kw_only=True, gc=False):
    """A consumer group's permissions and settings."""

    broker_id: int = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_message_orderly: bool | msgspec.UnsetType = msgspec.UNSET
    """From 5.x: whether consumers that leave the choice to the broker get messages in order."""
    group_name: str
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: int = 16
    retry_queue_nums: int = 1
    which_broker_when_consume_slowly: int = 1

    @property
    def is_orderly(self) -> bool:
        return self.consume_message_orderly is True


class SubscriptionData(msgspec.Struct, rename="camel", kw_only=True, gc=False):
    """A group's subscription to one topic."""

    class_filter_mode: bool = False
    code_set: list[int] = []
    expression_type: str = EXPRESSION_TYPE_TAG
    sub_string: str = SUB_ALL
    sub_version: int = 0
    """The client's clock in milliseconds when it subscribed."""
    tags_set: list[str] = []
    topic: str

    @property
    def is_tag_expression(self) -> bool:
        return self.expression_type in (None, "", EXPRESSION_TYPE_TAG)


def build_subscription(
    topic: str, expression: str | None, sub_version: int, expression_type: str | None = None
) -> SubscriptionData:
    """Read a tag expression such as `A || B`; empty or `*` subscribes to everything.

    An expression of another type is kept unchanged. Tag hashes are always computed here and never
    taken from a client: the Go client hashes UTF-8 bytes, but the ConsumeQueue contains Java's hash
    of UTF-16 units.

    Raises:
        ValueError: the expression has no tag, such as `||`, or an expression of another type is
            empty.
    """
    text = (expression or "").strip()
    kind = expression_type or EXPRESSION_TYPE_TAG
    if kind != EXPRESSION_TYPE_TAG:
        if not expression:
            raise ValueError(f"an expression of type {kind} cannot be empty")
        return SubscriptionData(
            code_set=_NO_CODES,
            expression_type=kind,
            sub_string=expression,
            sub_version=sub_version,
            tags_set=_NO_TAGS,
            topic=topic,
        )
    if text in ("", SUB_ALL):
        return SubscriptionData(
            code_set=_NO_CODES,
            sub_string=SUB_ALL,
            sub_version=sub_version,
            tags_set=_NO_TAGS,
            topic=topic,
        )
    tags = list(dict.fromkeys(tag.strip() for tag in text.split("||") if tag.strip()))
    if not tags:
        raise ValueError(f"{text!r} contains no tag")
    return SubscriptionData(
        code_set=[java_hash(tag) for tag in tags],
        sub_string=text,
        sub_version=sub_version,
        tags_set=tags,
        topic=topic,
    )
