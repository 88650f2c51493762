"""QueryRoute and QueryAssignment: the location of a topic's queues, and their consumers.

Source: proxy/grpc/v2/route/RouteActivity.java (5.3.3).
Differs: the answer has the endpoints that the client used, port included, which works through NAT
and containers; RocketMQ answers with its own address and port.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from broker_core.access.rules import publish_needs, subscribe_needs
from broker_core.errors import CallStatusError
from broker_core.grpc_messages.enums import AddressScheme, Code, Permission
from broker_core.grpc_messages.routing import (
    Assignment,
    Broker,
    MessageQueue,
    QueryAssignmentResponse,
    QueryRouteResponse,
)
from broker_core.grpc_messages.shared import Address, Endpoints, Resource
from broker_core.grpc_services.name_checks import full_name, group_of, topic_of
from broker_core.grpc_services.statuses import OK
from broker_core.grpc_services.topic_types import accepted_types

if TYPE_CHECKING:
    from broker_core.config.broker import BrokerConfig
    from broker_core.grpc_messages.routing import QueryAssignmentRequest, QueryRouteRequest
    from broker_core.grpc_services.callers import CallAccess, Caller
    from broker_core.ha.role import Role
    from broker_core.message.topic_config import TopicConfig
    from broker_core.metadata.subscription_groups import SubscriptionGroups
    from broker_core.metadata.topics import Topics

ALL_QUEUES = -1
ADDRESSES_MAX = 64
HOST_CHARS_MAX = 255


class RouteService:
    """Event loop only. `advertised`, if given, replaces the endpoints that clients used."""

    def __init__(
        self,
        config: BrokerConfig,
        role: Role,
        topics: Topics,
        groups: SubscriptionGroups,
        access: CallAccess,
        own: Endpoints,
        advertised: Endpoints | None,
    ) -> None:
        self._config = config
        self._role = role
        self._topics = topics
        self._groups = groups
        self._access = access
        self._own = own
        self._advertised = advertised

    def query_route(self, caller: Caller, request: QueryRouteRequest) -> QueryRouteResponse:
        """QueryRoute.

        Raises:
            CallStatusError: ILLEGAL_TOPIC, TOPIC_NOT_FOUND.
            AccessRefusedError: the caller can neither send to the topic nor consume it.
        """
        name = full_name(request.topic)
        self._access.require_any(caller, [publish_needs(name), subscribe_needs([name], "")[:1]])
        topic = self._found(topic_of(request.topic))
        broker = self._broker(request.endpoints)
        return QueryRouteResponse(OK, _queues(topic, broker))

    def query_assignment(
        self, caller: Caller, request: QueryAssignmentRequest
    ) -> QueryAssignmentResponse:
        """QueryAssignment: all queues of the broker, because leases keep consumers apart.

        Raises:
            CallStatusError: ILLEGAL_TOPIC, ILLEGAL_CONSUMER_GROUP, TOPIC_NOT_FOUND, FORBIDDEN.
            AccessRefusedError: the caller can't consume the topic in the group.
        """
        needs = subscribe_needs([full_name(request.topic)], full_name(request.group))
        self._access.require(caller, needs)
        topic = self._found(topic_of(request.topic))
        group = self._groups.find(group_of(request.group))
        if not topic.is_readable or topic.read_queue_nums < 1:
            raise CallStatusError(Code.FORBIDDEN, "no readable queue")
        broker = self._broker(request.endpoints)
        permission = Permission.READ_WRITE if topic.is_writable else Permission.READ
        ids = range(topic.read_queue_nums) if group and group.is_orderly else (ALL_QUEUES,)
        resource = Resource("", topic.topic_name)
        kinds = [int(kind) for kind in accepted_types(topic)]
        return QueryAssignmentResponse(
            OK,
            [Assignment(MessageQueue(resource, each, permission, broker, kinds)) for each in ids],
        )

    def _found(self, topic: str) -> TopicConfig:
        found = self._topics.find(topic)
        if found is None:
            raise CallStatusError(
                Code.TOPIC_NOT_FOUND,
                f"CODE: 17  DESC: No topic route info in name server for the topic: {topic}",
            )
        return found

    def _broker(self, used: Endpoints | None) -> Broker:
        endpoints = self._advertised
        if endpoints is None and used is not None and _is_usable(used):
            endpoints = used
        return Broker(self._config.broker_name, self._role.broker_id, endpoints or self._own)


def endpoints_of(host: str, port: int) -> Endpoints:
    """Return the endpoints of one address."""
    try:
        version = ipaddress.ip_address(host).version
        scheme = AddressScheme.IPv6 if version == 6 else AddressScheme.IPv4
    except ValueError:
        scheme = AddressScheme.DOMAIN_NAME
    return Endpoints(scheme, [Address(host, port)])


def _is_usable(endpoints: Endpoints) -> bool:
    addresses = endpoints.addresses
    return 0 < len(addresses) <= ADDRESSES_MAX and all(
        0 < len(each.host) <= HOST_CHARS_MAX and 0 < each.port < 1 << 16 for each in addresses
    )


def _queues(topic: TopicConfig, broker: Broker) -> list[MessageQueue]:
    """Return a topic's queues: read-only, then write-only, then readable and writable."""
    reads = topic.read_queue_nums if topic.is_readable else 0
    writes = topic.write_queue_nums if topic.is_writable else 0
    both = min(reads, writes)
    permissions = [
        *[Permission.READ] * (reads - both),
        *[Permission.WRITE] * (writes - both),
        *[Permission.READ_WRITE] * both,
    ] or [Permission.NONE]
    resource = Resource("", topic.topic_name)
    kinds = [int(kind) for kind in accepted_types(topic)]
    return [
        MessageQueue(resource, number, permission, broker, kinds)
        for number, permission in enumerate(permissions)
    ]
