"""Answers to sends that are held back until their puts are flushed or replicated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.remoting.deferred_answer import DeferredAnswer

if TYPE_CHECKING:
    from broker_core.processors.send import SendProcessor
    from broker_core.protocol.command import RemotingCommand
    from broker_core.store.results import PutBatchResult, PutMessageResult, PutMessageStatus


class PendingSends(DeferredAnswer):
    """The answer to one put."""

    __slots__ = ("answer", "processor", "put_at", "queue_id", "request", "result")

    def __init__(
        self,
        processor: SendProcessor,
        request: RemotingCommand,
        queue_id: int,
        result: PutMessageResult | PutBatchResult,
        answer: RemotingCommand | bytes,
        put_at: float,
    ) -> None:
        super().__init__()
        self.processor = processor
        self.request = request
        self.queue_id = queue_id
        self.result = result
        self.answer = answer
        self.put_at = put_at

    def end(self, status: PutMessageStatus) -> None:
        """See Waiter."""
        try:
            outcome: RemotingCommand | bytes | Exception = self.processor.answer_of(self, status)
        except Exception as error:  # noqa: BLE001
            # Other sends wait for the same report.
            outcome = error
        self.finish(outcome)


class PendingSendsOfTurn(DeferredAnswer):
    """The answers to all puts of one turn."""

    __slots__ = ("answers", "processor", "put_at")

    def __init__(self, processor: SendProcessor, answers: bytes, put_at: float) -> None:
        super().__init__()
        self.processor = processor
        self.answers = answers
        self.put_at = put_at

    def end(self, status: PutMessageStatus) -> None:
        """See Waiter."""
        try:
            outcome: bytes | Exception = self.processor.answers_of(self, status)
        except Exception as error:  # noqa: BLE001
            # Other sends wait for the same report.
            outcome = error
        self.finish(outcome)
