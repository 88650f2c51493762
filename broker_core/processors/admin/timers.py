"""GET_TIMER_MESSAGES: lists pending timer messages. The request code is Trebuchet's own.

The body is a JSON object: `total` is the number of pending messages, `nextDueMs` the next due time
(-1 if there isn't one), and `messages` lists the next ones, soonest first. With `key`, it lists the
messages with this key or unique key::

    queueOffset, commitLogOffset   location of the pending record
    topic, queueId                 destination
    dueMs                          due time, since the epoch
    msgId, keys, tags, bodySize    of the message
    storeTimestamp, storeHost      of the pending record
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_core.errors import RequestRefusedError
from broker_core.message import names
from broker_core.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from broker_core.message.message import MessageExt
    from broker_core.processors.long_answers import LongAnswers, Steps
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.timers.service import TimerService

LIST_MAX = 32
"""Each message is read from the log."""


class TimersAdmin:
    """GET_TIMER_MESSAGES. Event loop only."""

    def __init__(self, timers: TimerService, long_answers: LongAnswers) -> None:
        self._timers = timers
        self._long_answers = long_answers

    def messages(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        """GET_TIMER_MESSAGES.

        Answers SUCCESS, or SERVICE_NOT_AVAILABLE on a slave and on a master that is still reading
        its timers.
        """
        if not self._timers.is_loaded:
            raise RequestRefusedError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "timers not available: the broker is a slave or still loads them; query the "
                "master, or try again in a few seconds",
            )
        steps = self._steps(request.ext_fields.get("key"))
        return self._long_answers.answer(request, connection, steps)

    def _steps(self, key: str | None) -> Steps:
        timers = self._timers
        if key:
            entries = [_entry(due_ms, each) for due_ms, each in timers.find_by_key(key)]
        else:
            entries = []
            for due_ms, queue_offset in timers.upcoming(LIST_MAX):
                message = timers.message_at(queue_offset)
                if message is not None:
                    entries.append(_entry(due_ms, message))
                yield
        next_due_ms = timers.next_due_ms
        return {
            "total": timers.count,
            "nextDueMs": -1 if next_due_ms is None else next_due_ms,
            "messages": entries,
        }


def _entry(due_ms: int, message: MessageExt) -> dict[str, Any]:
    get = message.properties.get
    return {
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.commit_log_offset,
        "topic": get(names.PROPERTY_REAL_TOPIC, ""),
        "queueId": int(get(names.PROPERTY_REAL_QUEUE_ID, "-1")),
        "dueMs": due_ms,
        "msgId": message.uniq_key or "",
        "keys": get(names.PROPERTY_KEYS, ""),
        "tags": get(names.PROPERTY_TAGS, ""),
        "bodySize": len(message.body),
        "storeTimestamp": message.store_timestamp,
        "storeHost": message.store_host,
    }
