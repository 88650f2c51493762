"""Undecided transactions for tools: list them, and check one now. The request codes are Trebuchet's
own.

The body of GET_HALF_MESSAGES is a JSON object: `total` is the number of undecided transactions,
`halves` lists them from `fromOffset` on in the order of their half messages, and `next` is the
offset of the next page, -1 at the end::

    queueOffset, commitLogOffset   location of the last copy, as END_TRANSACTION names it
    topic, queueId, group          the destination and the producer group
    msgId, keys, tags, bodySize    of the message
    bornTimestamp, bornHost        set by the producer
    storeTimestamp                 of the last copy
    ageMs, checkTimes              age of the transaction; number of checks so far

With `key` (a key or unique key) or `queueOffset`, it lists the matching half messages, including
decided ones, each copy separately, with these fields in addition::

    storeHost, storeSize           of the record
    outcome                        undecided, committed, rolled_back; given_up: checked too often;
                                   unknown: a slave can't tell
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_core.errors import RequestRefusedError
from broker_core.message import names
from broker_core.protocol.codes import ResponseCode
from broker_core.protocol.headers import fields
from broker_core.transaction.half import check_times, real_place

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from broker_core.clock import SteadyClock
    from broker_core.message.message import MessageExt
    from broker_core.processors.long_answers import LongAnswers, Steps
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.transaction.check import TransactionCheck
    from broker_core.transaction.resolve import Transactions

HALVES_AT_ONCE_MAX = 64
"""Each is read from the log."""


class TransactionAdmin:
    """GET_HALF_MESSAGES, CHECK_HALF_MESSAGE. Event loop only."""

    def __init__(
        self,
        transactions: Transactions,
        check: TransactionCheck,
        steady: SteadyClock,
        long_answers: LongAnswers,
    ) -> None:
        self._transactions = transactions
        self._check = check
        self._steady = steady
        self._long_answers = long_answers

    def halves(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        """GET_HALF_MESSAGES. Answers SUCCESS with the undecided transactions from an offset on.

        With a key or a half message's offset, answers with the matching ones, decided or not.
        """
        if key := request.ext_fields.get("key"):
            steps = self._details(self._transactions.with_key(key))
            return self._long_answers.answer(request, connection, steps)
        if "queueOffset" in request.ext_fields:
            at = self._transactions.at(fields.int64(request.ext_fields, "queueOffset", low=0))
            return self._long_answers.answer(request, connection, self._details([at] if at else []))
        first = fields.int64(request.ext_fields, "fromOffset", 0)
        return self._long_answers.answer(request, connection, self._halves(first))

    def check(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """CHECK_HALF_MESSAGE: check a transaction with a producer now.

        Answers SUCCESS when a producer was asked; QUERY_NOT_FOUND when queueOffset has no pending
        half message; SYSTEM_ERROR when no producer of its group is connected.
        """
        queue_offset = fields.int64(request.ext_fields, "queueOffset")
        is_asked = self._check.ask_now(queue_offset)
        if is_asked is None:
            raise RequestRefusedError(
                ResponseCode.QUERY_NOT_FOUND,
                f"no undecided transaction is at {queue_offset}: it was decided, or has been "
                "checked since",
            )
        if not is_asked:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, "no producer of the transaction's group is connected"
            )
        return request.answer(ResponseCode.SUCCESS)

    def _halves(self, first: int) -> Steps:
        pending = self._transactions.pending
        offsets = sorted(offset for offset in list(pending) if offset >= first)
        shown: list[dict[str, Any]] = []
        for offset in offsets[:HALVES_AT_ONCE_MAX]:
            half = pending.get(offset)
            message = None if half is None or half.outcome else self._transactions.read(half)
            if half is not None and message is not None:
                shown.append(self._shown(message, half.since_ms))
            yield
        rest = offsets[HALVES_AT_ONCE_MAX:]
        return {"halves": shown, "next": rest[0] if rest else -1, "total": len(pending)}

    def _details(self, messages: list[MessageExt]) -> Steps:
        shown: list[dict[str, Any]] = []
        for message in messages:
            more = {
                "outcome": self._transactions.outcome_of(message),
                "storeHost": message.store_host,
                "storeSize": message.store_size,
            }
            shown.append(self._shown(message, message.store_timestamp) | more)
            yield
        return {"halves": shown, "next": -1, "total": len(shown)}

    def _shown(self, message: MessageExt, since_ms: int) -> dict[str, Any]:
        topic, queue_id = real_place(message) or ("", -1)
        get = message.properties.get
        return {
            "ageMs": max(0, self._steady.now_ms() - since_ms),
            "bodySize": len(message.body),
            "bornHost": message.born_host,
            "bornTimestamp": message.born_timestamp,
            "checkTimes": check_times(message.properties),
            "commitLogOffset": message.commit_log_offset,
            "group": get(names.PROPERTY_PRODUCER_GROUP, ""),
            "keys": get(names.PROPERTY_KEYS, ""),
            "msgId": message.uniq_key or "",
            "queueId": queue_id,
            "queueOffset": message.queue_offset,
            "storeTimestamp": message.store_timestamp,
            "tags": get(names.PROPERTY_TAGS, ""),
            "topic": topic,
        }
