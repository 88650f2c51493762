"""Detours: deferred and withheld messages wait in a system topic of the broker.

The message properties contain the final destination.

Source: store/CommitLog.java asyncPutMessage, broker/processor/SendMessageProcessor.java (4.9.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_core.errors import RequestRefusedError
from broker_core.message import names
from broker_core.message.names import PROPERTY_DELAY_TIME_LEVEL, PROPERTY_TRANSACTION_PREPARED
from broker_core.protocol.codes import ResponseCode
from broker_core.timers.delivery_time import TIMER_PROPERTIES
from broker_core.transaction.half import PlainHalf, withhold

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker_core.config.broker import BrokerConfig
    from broker_core.delay.levels import DelayLevels
    from broker_core.delay.schedule import ScheduleService
    from broker_core.store.results import PutMessageResult
    from broker_core.timers.service import TimerService
    from broker_core.transaction.resolve import Transactions

    Place = tuple[str, int]

DETOUR_PROPERTIES = frozenset(
    {PROPERTY_TRANSACTION_PREPARED, PROPERTY_DELAY_TIME_LEVEL, *TIMER_PROPERTIES}
)
"""A message without these properties goes straight to its queue."""


class Detours:
    """Event loop only."""

    def __init__(
        self,
        config: BrokerConfig,
        levels: DelayLevels,
        schedule: ScheduleService,
        timers: TimerService,
        transactions: Transactions,
    ) -> None:
        self._config = config
        self._levels = levels
        self._schedule = schedule
        self._timers = timers
        self._transactions = transactions

    def place_of(self, properties: dict[str, str], topic: str, queue_id: int) -> Place | None:
        """Return where a message waits for its time or its commit, None if it doesn't wait.

        Adds the destination topic and queue_id to the properties.

        Raises:
            RequestRefusedError: transactions are switched off, the delay level isn't a number, or
                the delivery time is refused: it is invalid, or the message is transactional.
        """
        is_retry = names.is_retry_topic(topic) or names.is_dlq_topic(topic)
        prepared = properties.get(PROPERTY_TRANSACTION_PREPARED, "")
        # A consumer's retry repeats the property of a committed message.
        if prepared.lower() == "true" and not is_retry:
            if self._config.reject_transaction_message:
                raise RequestRefusedError(
                    ResponseCode.NO_PERMISSION,
                    f"the broker[{self._config.broker_ip1}] sending transaction message is "
                    "forbidden",
                )
            for name in TIMER_PROPERTIES:
                if name in properties:
                    # Differs: RocketMQ accepts the message and then loses it.
                    raise RequestRefusedError(
                        ResponseCode.MESSAGE_ILLEGAL,
                        f"a transactional message can't have a delivery time ({name}); send it "
                        "without one, or outside a transaction",
                    )
            return withhold(properties, topic, queue_id)
        try:
            place = self._levels.defer(properties, topic, queue_id)
        except ValueError as error:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        if place is None:
            return self._timers.defer(properties, topic, queue_id)
        for name in TIMER_PROPERTIES:
            properties.pop(name, None)
        return place

    def note_put(
        self,
        place: Place,
        result: PutMessageResult,
        properties: Mapping[str, str],
        body: bytes,
        born_timestamp: int,
        born_host: bytes,
    ) -> None:
        """Notify the service that later delivers the message of the put."""
        topic, queue_id = place
        if topic == names.RMQ_SYS_SCHEDULE_TOPIC:
            self._schedule.note_put(queue_id, result)
        elif topic == names.RMQ_SYS_TIMER_TOPIC:
            self._timers.note_put(result, properties)
        else:
            self._transactions.add(result, properties, body, born_timestamp, born_host)

    def note_halves(self, halves: Sequence[tuple[Any, ...]], born_host: bytes) -> None:
        """Notify the transaction service of one client's half messages; see PlainHalf."""
        for half in halves:
            self._transactions.add_plain(PlainHalf._make(half), born_host)
