"""NamesrvConfig: the behavior of the name server, embedded or standalone.

Source: common/namesrv/NamesrvConfig.java (4.9.7; the last four keys 5.3.3).
"""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.config import checks
from broker_core.config.setting import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvConfig:
    """Switches that UPDATE_NAMESRV_CONFIG may change, since each takes effect immediately."""

    product_env_name: str = setting("center", check=checks.name, live=True, has_effect=False)
    """A display name; RocketMQ uses it only with clusterTest."""
    order_message_enable: bool = setting(default=False, live=True)
    """Routes include the queues of ORDER_TOPIC_CONFIG."""
    return_order_topic_config_to_broker: bool = setting(default=True, live=True)
    """The answer to a registration includes the table of ORDER_TOPIC_CONFIG."""
    delete_topic_with_broker_registration: bool = setting(default=False, live=True)
    """A broker that registers without a topic loses it. Don't use it with 4.9 brokers: they
    announce only the changed topic.
    """
    enable_all_topic_list: bool = setting(default=True, live=True)
    """GET_ALL_TOPIC_LIST_FROM_NAMESERVER is answered."""
    enable_topic_list: bool = setting(default=True, live=True)
    """The lists of a cluster's topics and of units' topics are answered."""
