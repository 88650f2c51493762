"""Check the names of topics and groups in RocketMQ 5 requests.

Source: proxy/grpc/v2/common/GrpcValidator.java (5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.errors import CallStatusError
from broker_core.grpc_messages.enums import Code
from broker_core.message import names

if TYPE_CHECKING:
    from broker_core.grpc_messages.shared import Resource


def full_name(resource: Resource | None) -> str:
    """Return a name with its namespace, as in the broker's tables."""
    if resource is None:
        return ""
    if resource.resource_namespace:
        return f"{resource.resource_namespace}{names.NAMESPACE_SEPARATOR}{resource.name}"
    return resource.name


def topic_of(resource: Resource | None) -> str:
    """Return the name of a topic in a request.

    Raises:
        CallStatusError: ILLEGAL_TOPIC.
    """
    topic = full_name(resource)
    wrong = names.check_topic(topic)
    if wrong is not None:
        raise CallStatusError(Code.ILLEGAL_TOPIC, wrong)
    if names.is_system_topic(topic):
        raise CallStatusError(Code.ILLEGAL_TOPIC, "cannot access system topic")
    return topic


def group_of(resource: Resource | None) -> str:
    """Return the name of a group in a request.

    Raises:
        CallStatusError: ILLEGAL_CONSUMER_GROUP.
    """
    group = full_name(resource)
    wrong = names.check_group(group)
    if wrong is not None:
        raise CallStatusError(Code.ILLEGAL_CONSUMER_GROUP, wrong)
    if group.startswith(names.CID_RMQ_SYS_PREFIX):
        raise CallStatusError(Code.ILLEGAL_CONSUMER_GROUP, "cannot use system consumer group")
    return group
