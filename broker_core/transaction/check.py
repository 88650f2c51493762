"""The check: ask producers for the outcome of their transactions.

In every interval the broker checks each half message that is older than its immunity. It puts a
copy with an incremented check count at the queue's end, and asks any live producer of the group for
the outcome of that copy. After transactionCheckMax checks it moves the message to
TRANS_CHECK_MAX_TIME_TOPIC.

Source: broker/transaction/queue/TransactionalMessageServiceImpl.java check (4.9.7).
Differs: age is measured with this broker's steady clock from the put; RocketMQ subtracts the
producer's clock from its own. Rounds within the immunity don't count as checks; in RocketMQ, 15
minutes of immunity park the message before a producer was asked.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from broker_core.errors import RequestRefusedError
from broker_core.isolation import isolated
from broker_core.message import names
from broker_core.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.clock import Clock, SteadyClock
    from broker_core.counted_log import CountedLog
    from broker_core.message.message import MessageExt
    from broker_core.transaction.half import Half, Outcome
    from broker_core.transaction.resolve import Transactions

    Ask = Callable[["CheckedHalf"], bool]
    ResolveDiscard = Callable[[Half, MessageExt], Outcome | None]

logger = logging.getLogger(__name__)

HALVES_PER_TURN = 64
SETTLE_SECONDS = 1.0
SPAN_MAX = 10_000
"""Above this many half messages since the oldest undecided one, immune ones move to the end of the
queue, so that a restart reads fewer.
"""


class CheckSettings(NamedTuple):
    """When, and how often, producers are asked. Times are in milliseconds."""

    timeout_ms: int
    interval_ms: int
    check_max: int
    reserved_ms: int
    """Older transactions are discarded, because the log will delete them soon."""


class CheckedHalf(NamedTuple):
    """The message that a producer is asked about, and the location of its last copy."""

    message: MessageExt
    queue_offset: int
    commit_log_offset: int


class TransactionCheck(Service):
    """Rounds over the undecided transactions. Event loop only.

    `settings` is called each time, because its values may change. `ask` sends the question to a
    live producer of the message's group, and returns False if there isn't any. `resolve_discard`
    returns the outcome of a transaction that was checked too often, or None to park it.
    """

    def __init__(
        self,
        settings: Callable[[], CheckSettings],
        transactions: Transactions,
        ask: Ask,
        counted_log: CountedLog,
        clock: Clock,
        steady: SteadyClock,
        resolve_discard: ResolveDiscard | None = None,
    ) -> None:
        super().__init__()
        self._resolve_discard = resolve_discard
        self._settings = settings
        self._transactions = transactions
        self._ask = ask
        self._counted_log = counted_log
        self._clock = clock
        self._steady = steady

    def start(self) -> None:
        self._transactions.start()
        self.spawn_forever(self._clock, self._check_forever, name="transaction-check")
        self.spawn_forever(self._clock, self._settle_forever, name="transaction-progress")

    async def shutdown(self) -> None:
        """Stop asking; commit the progress."""
        await super().shutdown()
        await self._transactions.settle_all()

    async def check(self) -> None:
        """Run one round."""
        transactions = self._transactions
        started_ms = self._steady.now_ms()
        transactions.write_pending()
        for offsets in _parts(list(transactions.pending)):
            questions = []
            for queue_offset in offsets:
                half = transactions.pending.get(queue_offset)
                # Skip half messages that were put in this round or decided meanwhile.
                if half is not None and half.outcome is None and half.stored_ms < started_ms:
                    question = None
                    with isolated("checking a transaction", f"queue_offset={queue_offset}"):
                        question = self._check_one(half)
                    if question is not None:
                        questions.append(question)
            if questions:
                # The producer may answer immediately, and its END reads the copy.
                await transactions.until_readable()
            for question in questions:
                with isolated("preparing a transaction check", question.queue_offset):
                    self._put(question)
            await self._clock.sleep(0)

    def ask_now(self, queue_offset: int) -> bool | None:
        """Ask a producer about one transaction now, without counting it as a check.

        Returns False if no producer of its group is connected, None if it is decided or has
        another offset.
        """
        half = self._transactions.pending.get(queue_offset)
        message = None if half is None or half.outcome else self._transactions.read(half)
        if half is None or message is None:
            return None
        return self._ask(CheckedHalf(message, half.queue_offset, half.commit_log_offset))

    def _check_one(self, half: Half) -> CheckedHalf | None:
        """Do the next step for one transaction; return the question for its producer, if any."""
        settings, transactions = self._settings(), self._transactions
        age_ms = self._steady.now_ms() - half.since_ms
        immunity_ms = settings.timeout_ms if half.immunity_ms is None else half.immunity_ms
        is_immune = age_ms < immunity_ms
        if is_immune and transactions.span <= SPAN_MAX:
            return None
        if not transactions.is_readable(half):
            # The copy isn't flushed or replicated yet: a later round asks.
            return None
        message = transactions.read(half)
        if message is None:
            logger.error("half message lost commit_log_offset=%d", half.commit_log_offset)
            transactions.forget(half)
            return None
        properties = dict(message.properties)
        if is_immune:
            properties.setdefault(
                names.PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET, str(half.queue_offset)
            )
            transactions.renew(half, message, properties)
            return None
        if half.check_times >= settings.check_max or age_ms > settings.reserved_ms:
            self._give_up(half, message)
            return None
        properties[names.PROPERTY_TRANSACTION_CHECK_TIMES] = str(half.check_times + 1)
        if transactions.renew(half, message, properties) is None:
            return None
        message.properties = properties
        return CheckedHalf(message, half.queue_offset, half.commit_log_offset)

    def _give_up(self, half: Half, message: MessageExt) -> None:
        """End a transaction with the listener's outcome, or park it; the next round retries."""
        transactions = self._transactions
        group = _group_of(message)
        outcome = None if self._resolve_discard is None else self._resolve_discard(half, message)
        if outcome is None:
            if transactions.park(half, message):
                self._counted_log.report(
                    logger,
                    logging.INFO,
                    "undecided transaction parked",
                    f"group={group}",
                    "checks=%d uniq_key=%s",
                    half.check_times,
                    half.uniq_key,
                )
            return
        try:
            put = transactions.end(group, half.queue_offset, half.commit_log_offset, outcome)
            became = "ended before" if put is None else put.status.name
        except RequestRefusedError as refusal:
            became = str(refusal)
        self._counted_log.report(
            logger,
            logging.WARNING,
            "undecided transaction ended",
            f"group={group}",
            "outcome=%s checks=%d uniq_key=%s status=%s",
            outcome.value,
            half.check_times,
            half.uniq_key,
            became,
        )

    def _put(self, question: CheckedHalf) -> None:
        if not self._ask(question):
            self._counted_log.report(
                logger,
                logging.WARNING,
                "no producer to check the transaction",
                f"group={_group_of(question.message)}",
                "uniq_key=%s",
                question.message.uniq_key,
            )

    async def _check_forever(self) -> None:
        while True:
            await self._clock.sleep(self._settings().interval_ms / 1000)
            await self.check()

    async def _settle_forever(self) -> None:
        while True:
            await self._clock.sleep(SETTLE_SECONDS)
            self._transactions.settle()


def _group_of(message: MessageExt) -> str:
    return message.properties.get(names.PROPERTY_PRODUCER_GROUP, "")


def _parts(offsets: list[int]) -> list[list[int]]:
    return [
        offsets[begin : begin + HALVES_PER_TURN]
        for begin in range(0, len(offsets), HALVES_PER_TURN)
    ]
