"""The settings that the broker sends to clients.

Source: proxy/grpc/v2/common/GrpcClientSettingsManager.java (5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from broker_core.grpc_messages.clients import (
    CustomizedBackoff,
    ExponentialBackoff,
    Metric,
    RetryPolicy,
    Settings,
)
from broker_core.grpc_messages.times import duration_of
from broker_core.grpc_services.name_checks import full_name
from broker_core.message.subscription import SubscriptionGroupConfig

if TYPE_CHECKING:
    from broker_core.metadata.subscription_groups import SubscriptionGroups

BODY_BYTES_MAX = 4 * 1024 * 1024
SEND_ATTEMPTS = 3
RECEIVE_BATCH = 32
LONG_POLLING_MS = 20_000
_MINUTE = 60
RETRY_SECONDS = (
    *(1, 5, 10, 30),
    *(minutes * _MINUTE for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)),
)
"""Delays before a failed consumer gets a message again, by attempt."""
PRODUCERS_POLICY = RetryPolicy(
    SEND_ATTEMPTS,
    exponential_backoff=ExponentialBackoff(duration_of(10), duration_of(1_000), 2.0),
)
NO_METRIC = Metric(on=False)
"""Always sent, because Python clients before 5.1.1 ignore settings without it."""


def complete_settings(settings: Settings, groups: SubscriptionGroups) -> Settings:
    """Return a client's settings, completed with the broker's values."""
    settings = msgspec.structs.replace(settings, metric=NO_METRIC)
    if settings.publishing is not None:
        settings.backoff_policy = PRODUCERS_POLICY
        settings.publishing = msgspec.structs.replace(
            settings.publishing, max_body_size=BODY_BYTES_MAX, validate_message_type=True
        )
    elif settings.subscription is not None:
        name = full_name(settings.subscription.group)
        group = groups.find(name) or SubscriptionGroupConfig(group_name=name)
        settings.backoff_policy = RetryPolicy(
            group.retry_max_times + 1,
            customized_backoff=CustomizedBackoff(
                [duration_of(1_000 * seconds) for seconds in RETRY_SECONDS]
            ),
        )
        settings.subscription = msgspec.structs.replace(
            settings.subscription,
            fifo=group.is_orderly,
            receive_batch_size=RECEIVE_BATCH,
            long_polling_timeout=duration_of(LONG_POLLING_MS),
        )
    return settings
