"""Detours: a message that is deferred or withheld waits in a topic of the broker's own.

Its properties say where it goes after that.

Source: store/CommitLog.java asyncPutMessage, broker/processor/SendMessageProcessor.java (4.9.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_core.errors import RequestRefusedError
from broker_core.message import names
from broker_core.message.names import PROPERTY_DELAY_TIME_LEVEL, PROPERTY_TRANSACTION_PREPARED
from broker_core.protocol.codes import ResponseCode
from broker_core.transaction.half import PlainHalf, withhold

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker_core.config.broker import BrokerConfig
    from broker_core.delay.levels import DelayLevels
    from broker_core.delay.schedule import ScheduleService
    from broker_core.store.results import PutMessageResult
    from broker_core.transaction.resolve import Transactions

    Place = tuple[str, int]

UNSERVED_PROPERTIES = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")
DETOUR_PROPERTIES = frozenset(
    {PROPERTY_TRANSACTION_PREPARED, PROPERTY_DELAY_TIME_LEVEL, *UNSERVED_PROPERTIES}
)
"""A message without any of these goes straight to its queue."""


class Detours:
    """Event loop only."""

    def __init__(
        self,
        config: BrokerConfig,
        levels: DelayLevels,
        schedule: ScheduleService,
        transactions: Transactions,
    ) -> None:
        self._config = config
        self._levels = levels
        self._schedule = schedule
        self._transactions = transactions

    def place_of(self, properties: dict[str, str], topic: str, queue_id: int) -> Place | None:
        """Return where a message waits for its time or its commit, None when it does not.

        The properties get the topic and queue_id that it goes to after that.

        Raises:
            RequestRefusedError: transactions are switched off, the delay level is not a number, or
                the message asks for a delivery time that is not served.
        """
        is_retry = names.is_retry_topic(topic) or names.is_dlq_topic(topic)
        prepared = properties.get(PROPERTY_TRANSACTION_PREPARED, "")
        # A consumer's retry repeats the property of a message that was committed.
        if prepared.lower() == "true" and not is_retry:
            if self._config.reject_transaction_message:
                raise RequestRefusedError(
                    ResponseCode.NO_PERMISSION,
                    f"the broker[{self._config.broker_ip1}] sending transaction message is "
                    "forbidden",
                )
            return withhold(properties, topic, queue_id)
        for name in UNSERVED_PROPERTIES:
            if name in properties:
                raise RequestRefusedError(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"the message asks for a later delivery ({name}), which this broker does not "
                    "serve",
                )
        try:
            return self._levels.defer(properties, topic, queue_id)
        except ValueError as error:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, str(error)) from error

    def note_put(
        self,
        place: Place,
        result: PutMessageResult,
        properties: Mapping[str, str],
        body: bytes,
        born_timestamp: int,
        born_host: bytes,
    ) -> None:
        """Tell whoever sends the message on that it was put to its detour just now."""
        topic, queue_id = place
        if topic == names.RMQ_SYS_SCHEDULE_TOPIC:
            self._schedule.note_put(queue_id, result)
        else:
            self._transactions.add(result, properties, body, born_timestamp, born_host)

    def note_halves(self, halves: Sequence[tuple[Any, ...]], born_host: bytes) -> None:
        """Tell that half messages of one client were put to their detour; see PlainHalf."""
        for half in halves:
            self._transactions.add_plain(PlainHalf._make(half), born_host)
