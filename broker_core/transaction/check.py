"""The check: asking producers what became of their transactions.

Every interval each half message that is older than its immunity is put to the queue's end as a
copy with one more check counted, and any live producer of its group is asked for the outcome of
that copy. After so many checks it is moved to TRANS_CHECK_MAX_TIME_TOPIC.

Source: broker/transaction/queue/TransactionalMessageServiceImpl.java check (4.9.7).
Differs: age is counted by this broker's steady clock from the put, the original subtracts the
producer's clock from its own; immunity is not counted as checks, in the original a quarter of an
hour of it parks the message unasked.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from broker_core.message import names
from broker_core.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.clock import Clock, SteadyClock
    from broker_core.message.message import MessageExt
    from broker_core.transaction.half import Half, Outcome
    from broker_core.transaction.resolve import Transactions

    Ask = Callable[["CheckedHalf"], bool]
    ResolveDiscard = Callable[[Half, MessageExt], Outcome | None]

logger = logging.getLogger(__name__)

HALVES_PER_TURN = 64
SETTLE_SECONDS = 1.0
SPAN_MAX = 10_000
"""With more half messages than this behind the oldest one, immune ones are moved to the end, so
that a restart has not to look at all of them."""


class CheckSettings(NamedTuple):
    """When producers are asked; milliseconds, and how often."""

    timeout_ms: int
    interval_ms: int
    check_max: int
    reserved_ms: int
    """Older than this a transaction is given up: the log forgets it soon."""


class CheckedHalf(NamedTuple):
    """What a producer is asked about: the message, and where the copy that stands for it is."""

    message: MessageExt
    queue_offset: int
    commit_log_offset: int


class TransactionCheck(Service):
    """Rounds over the undecided transactions. Event loop only.

    Attributes:
        ask: sends the question to a live producer of the message's group; False without one.
        resolve_discard: says how a transaction ends that was checked too often; None parks it.
    """

    def __init__(
        self,
        settings: CheckSettings,
        transactions: Transactions,
        ask: Ask,
        clock: Clock,
        steady: SteadyClock,
    ) -> None:
        super().__init__()
        self.resolve_discard: ResolveDiscard | None = None
        self._settings = settings
        self._transactions = transactions
        self._ask = ask
        self._clock = clock
        self._steady = steady

    def start(self) -> None:
        self._transactions.start()
        self.spawn(self._check_forever(), name="transaction-check")
        self.spawn(self._settle_forever(), name="transaction-progress")

    async def shutdown(self) -> None:
        """Stop asking; tell the offsets how far all is dealt with."""
        await super().shutdown()
        await self._transactions.settle_all()

    async def check(self) -> None:
        """Make one round."""
        transactions = self._transactions
        started_ms = self._steady.now_ms()
        transactions.write_owed()
        for offsets in _parts(list(transactions.pending)):
            questions = []
            for queue_offset in offsets:
                half = transactions.pending.get(queue_offset)
                # What was put in this round, or is decided meanwhile, is none of its business.
                if half is not None and half.outcome is None and half.stored_ms < started_ms:
                    question = self._check_one(half)
                    if question is not None:
                        questions.append(question)
            if questions:
                # The producer answers at once: by then the copy must be there to be read.
                await transactions.until_readable()
            for question in questions:
                self._put(question)
            await self._clock.sleep(0)

    def _check_one(self, half: Half) -> CheckedHalf | None:
        """Do what is due for one transaction; return what its producer is to be asked."""
        settings, transactions = self._settings, self._transactions
        age_ms = self._steady.now_ms() - half.since_ms
        immunity_ms = settings.timeout_ms if half.immunity_ms is None else half.immunity_ms
        is_immune = age_ms < immunity_ms
        if is_immune and transactions.span <= SPAN_MAX:
            return None
        message = transactions.read(half)
        if message is None:
            logger.error("half message is gone: commit_log_offset=%d", half.commit_log_offset)
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
        """End a transaction as is decided for it, else park it; what fails comes again."""
        transactions = self._transactions
        outcome = None if self.resolve_discard is None else self.resolve_discard(half, message)
        if outcome is None:
            if transactions.park(half, message):
                logger.error(
                    "transaction is undecided after %d checks, moved to %s: uniq_key=%s",
                    half.check_times,
                    names.RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
                    half.uniq_key,
                )
            return
        ended = transactions.end(
            message.properties.get(names.PROPERTY_PRODUCER_GROUP, ""),
            half.queue_offset,
            half.commit_log_offset,
            outcome,
        )
        logger.warning(
            "transaction is undecided after %d checks, to be %s: uniq_key=%s outcome=%s",
            half.check_times,
            outcome.value,
            half.uniq_key,
            ended.refusal or ended.status.name,
        )

    def _put(self, question: CheckedHalf) -> None:
        if not self._ask(question):
            logger.warning(
                "no producer to ask: group=%s uniq_key=%s",
                question.message.properties.get(names.PROPERTY_PRODUCER_GROUP),
                question.message.uniq_key,
            )

    async def _check_forever(self) -> None:
        while True:
            await self._clock.sleep(self._settings.interval_ms / 1000)
            await self.check()

    async def _settle_forever(self) -> None:
        while True:
            await self._clock.sleep(SETTLE_SECONDS)
            self._transactions.settle()


def _parts(offsets: list[int]) -> list[list[int]]:
    return [
        offsets[begin : begin + HALVES_PER_TURN]
        for begin in range(0, len(offsets), HALVES_PER_TURN)
    ]
