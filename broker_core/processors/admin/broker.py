"""Administration of the broker itself: runtime info, configuration, statistics.

Source: broker/processor/AdminBrokerProcessor.java, store/StoreStatsService.java (4.9.7).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from broker_core.config.key_descriptions import describe_keys
from broker_core.config.properties import parse_properties
from broker_core.config.unknown_keys import is_known, unknown_key
from broker_core.config.unsupported_keys import one_value_items
from broker_core.config.update import update
from broker_core.errors import ConfigError, RequestRefusedError
from broker_core.message.data_version import DataVersion
from broker_core.protocol import java_json
from broker_core.protocol.codes import BROKER_VERSION, ResponseCode
from broker_core.protocol.headers import fields
from broker_core.protocol.signature import ACCESS_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker_core.clock import Clock
    from broker_core.config.configuration import Configuration
    from broker_core.delay.schedule import ScheduleService
    from broker_core.delivery.slow_consumers import SlowConsumers
    from broker_core.metadata.topics import Topics
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.stats.counters import BrokerStats
    from broker_core.store.message_store import MessageStore

logger = logging.getLogger(__name__)

BROKER_VERSION_DESC = "V4_9_7"
DESCRIBED = "described"
KEYS_WITHOUT_EFFECT = "keysWithoutEffect"
"""The row of GET_BROKER_CONFIG that lists the keys in the file that have no effect."""

# RocketMQ's thread pools and their queues. This broker has no thread pools: a single event loop
# answers all requests. mqadmin reads these keys.
NO_QUEUES = {
    "sendThreadPoolQueueSize": "0",
    "sendThreadPoolQueueCapacity": "0",
    "pullThreadPoolQueueSize": "0",
    "pullThreadPoolQueueCapacity": "0",
    "queryThreadPoolQueueSize": "0",
    "queryThreadPoolQueueCapacity": "0",
    "EndTransactionQueueSize": "0",
    "EndTransactionThreadPoolQueueCapacity": "0",
    "pageCacheLockTimeMills": "0",
}


class BrokerAdmin:
    """GET_BROKER_RUNTIME_INFO, GET_BROKER_CONFIG, UPDATE_BROKER_CONFIG, VIEW_BROKER_STATS_DATA,
    GET_ALL_DELAY_OFFSET. Event loop only.

    `on_change` is called with the keys and values that UPDATE_BROKER_CONFIG changed; `more_info`
    returns additional rows for the runtime info.
    """

    def __init__(
        self,
        configuration: Configuration,
        topics: Topics,
        store: MessageStore,
        schedule: ScheduleService,
        slow_consumers: SlowConsumers,
        stats: BrokerStats,
        late_ms: Callable[[], float],
        clock: Clock,
        on_change: Callable[[dict[str, str]], None],
        more_info: Callable[[], Mapping[str, str]],
    ) -> None:
        self._configuration = configuration
        self._topics = topics
        self._store = store
        self._schedule = schedule
        self._slow_consumers = slow_consumers
        self._stats = stats
        self._late_ms = late_ms
        self._clock = clock
        self._data_version = DataVersion(timestamp=clock.now_ms())
        self._on_change = on_change
        self._more_info = more_info

    def runtime_info(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_BROKER_RUNTIME_INFO. Answers SUCCESS with a KVTable of strings."""
        stats = self._stats
        late_ms = str(int(self._late_ms()))
        put_latency, get_latency = stats.put_latency, stats.get_latency
        table = {
            **NO_QUEUES,
            **self._store.runtime_info(),
            **self._schedule.runtime_info(),
            **self._slow_consumers.runtime_info(),
            **self._more_info(),
            "putMessageEntireTimeMax": str(round(put_latency.max_ms)),
            "putMessageDistributeTime": put_latency.distribution(),
            "getMessageEntireTimeMax": str(round(get_latency.max_ms)),
            "putLatency99": str(round(put_latency.quantile_ms(0.99), 3)),
            "putLatency999": str(round(put_latency.quantile_ms(0.999), 3)),
            "sendThreadPoolQueueHeadWaitTimeMills": late_ms,
            "pullThreadPoolQueueHeadWaitTimeMills": late_ms,
            "queryThreadPoolQueueHeadWaitTimeMills": late_ms,
            "msgPutTotalYesterdayMorning": str(stats.put_until_yesterday),
            "msgPutTotalTodayMorning": str(stats.put_until_today),
            "msgPutTotalTodayNow": str(stats.put_total),
            "msgGetTotalYesterdayMorning": str(stats.got_until_yesterday),
            "msgGetTotalTodayMorning": str(stats.got_until_today),
            "msgGetTotalTodayNow": str(stats.got_total),
            "brokerVersion": str(BROKER_VERSION),
            "brokerVersionDesc": BROKER_VERSION_DESC,
            "brokerActive": "true",
            "startAcceptSendRequestTimeStamp": str(
                self._configuration.broker.start_accept_send_request_time_stamp
            ),
        }
        return request.answer(ResponseCode.SUCCESS, body=java_json.encode({"table": table}))

    def all_delay_offsets(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_ALL_DELAY_OFFSET. Answers SUCCESS with delayOffset.json's content."""
        body = java_json.encode(self._schedule.document())
        return request.answer(ResponseCode.SUCCESS, body=body)

    def get_config(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_BROKER_CONFIG. Answers SUCCESS with the version, and the properties text as body.

        With Trebuchet's own field `described`, the body is JSON with a description of each key.
        """
        if fields.boolean(request.ext_fields, DESCRIBED):
            keys = {"keys": list(describe_keys(self._configuration))}
            return request.answer(
                ResponseCode.SUCCESS, ext_fields={DESCRIBED: "true"}, body=java_json.encode(keys)
            )
        text = "".join(f"{key}={value}\n" for key, value in self._shown().items())
        version = msgspec.json.encode(self._data_version).decode()
        return request.answer(
            ResponseCode.SUCCESS, ext_fields={"version": version}, body=text.encode()
        )

    def update_config(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """UPDATE_BROKER_CONFIG: change keys that can change at run time, all or nothing.

        Answers SUCCESS; NO_PERMISSION for any other key; SYSTEM_ERROR for a bad value. Differs:
        RocketMQ accepts all but three keys, paths included, from any client.
        """
        table = parse_properties(request.body.decode("utf-8", errors="replace"))
        shown = self._shown()
        wanted = {key: value for key, value in table.items() if shown.get(key) != value}
        try:
            changed = update(self._configuration, wanted)
        except ConfigError as error:
            if error.expected:
                raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, str(error)) from error
            remark = (
                f"{error.key} can't be changed over the network; change it in the broker's "
                "configuration file"
            )
            if not is_known(error.key):
                remark = unknown_key(error.key)
            raise RequestRefusedError(ResponseCode.NO_PERMISSION, remark) from error
        if changed:
            logger.warning(
                "configuration changed by request changes=%s access_key=%s peer=%s",
                " ".join(f"{key}={shown.get(key)}->{wanted[key]}" for key in changed),
                request.ext_fields.get(ACCESS_KEY),
                connection.remote_address,
            )
            self._data_version = self._data_version.next(self._clock.now_ms())
            self._on_change({key: wanted[key] for key in changed})
        return request.answer(ResponseCode.SUCCESS)

    def _shown(self) -> dict[str, str]:
        configuration = self._configuration
        items = {**one_value_items(), **dict(configuration.items())}
        if configuration.without_effect:
            items[KEYS_WITHOUT_EFFECT] = ",".join(key for key, _ in configuration.without_effect)
        return items

    def stats_data(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """VIEW_BROKER_STATS_DATA. Answers SUCCESS with an item's time windows, or SYSTEM_ERROR."""
        name = fields.text(request.ext_fields, "statsName")
        key = fields.text(request.ext_fields, "statsKey")
        table = self._stats.sets.get(name)
        item = None if table is None else table.get(key)
        if item is None:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist"
            )
        now = self._clock.monotonic()
        body = {
            "statsDay": item.day(now)._asdict(),
            "statsHour": item.hour(now)._asdict(),
            "statsMinute": item.minute(now)._asdict(),
        }
        return request.answer(ResponseCode.SUCCESS, body=java_json.encode(body))
