"""Replays: dead letters are sent again, one after the other, by a thread of the web process.

Each is marked before it is sent and after, so that nothing is sent twice unseen: when the process
ends in between, the page says of that one that it may have been sent, and the rest still waits.
"""

from __future__ import annotations

import logging
import threading
from time import monotonic
from typing import TYPE_CHECKING

from django.db import connections
from django.utils import timezone
from django.utils.translation import gettext as _

from broker_core.message import names
from console.accounts.rights import acts_for
from console.dead_letters.models import Outcome, Run, State, Target
from console.dead_letters.reading import PROPERTY_DLQ_ORIGIN_TOPIC, origin_topic
from console.gateway.access import gateway
from console.gateway.answers import BrokerQueue
from console.gateway.errors import GatewayError, RequestFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from console.dead_letters.models import Item
    from console.gateway.answers import MessageQueue
    from console.gateway.copies import MessageCopy

logger = logging.getLogger(__name__)

FAILURES_IN_A_ROW_MAX = 5
HEARTBEAT_S = 2.0
RUNS_AT_ONCE_MAX = 3
PROPERTY_REPLAYED = "TREBUCHET_REPLAY"
"""Which run has sent a message again; a property of the message."""
# What belonged to the message's way so far, and would lead astray the next one.
LEFT_OUT = frozenset(
    {
        names.PROPERTY_REAL_TOPIC,
        names.PROPERTY_REAL_QUEUE_ID,
        names.PROPERTY_DELAY_TIME_LEVEL,
        names.PROPERTY_TRANSACTION_PREPARED,
        names.PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
        names.PROPERTY_RECONSUME_TIME,
        names.PROPERTY_MAX_RECONSUME_TIMES,
        names.PROPERTY_CONSUME_START_TIMESTAMP,
        names.PROPERTY_MIN_OFFSET,
        names.PROPERTY_MAX_OFFSET,
        names.PROPERTY_INNER_MULTI_DISPATCH,
        names.PROPERTY_INNER_MULTI_QUEUE_OFFSET,
        names.PROPERTY_CRC32,
        PROPERTY_DLQ_ORIGIN_TOPIC,
    }
)


class Replayer:
    """Sends one run's dead letters. `wait` returns whether the process is to end."""

    def __init__(
        self,
        run: Run,
        *,
        clock: Callable[[], float] = monotonic,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        self._run = run
        self._clock = clock
        self._wait = wait or threading.Event().wait
        self._queues: dict[str, tuple[MessageQueue, ...]] = {}
        self._sent = 0
        self._beat_at = clock()

    @acts_for(None)
    def run(self) -> None:
        """Send what waits, until all is sent, somebody cancels, or too much fails.

        It is the console's work: who began it may replay bodies that they may not read.
        """
        failures = 0
        began = self._clock()
        waiting = self._run.items.filter(outcome=Outcome.WAITING)
        for item in list(waiting):
            if not self._may_go_on():
                self._run.end(State.STOPPED, _("Somebody cancelled it."))
                return
            if self._sent:
                # By the beginning, not by the last one: pauses do not add up to a lower rate.
                due = began + self._sent / self._run.rate
                self._wait(max(0.0, due - self._clock()))
            outcome = self._send(item)
            self._sent += 1
            failures = failures + 1 if outcome in (Outcome.FAILED, Outcome.UNKNOWN) else 0
            if failures >= FAILURES_IN_A_ROW_MAX:
                sentence = _("%(count)d failed one after the other; the last one says: %(why)s")
                values = {"count": failures, "why": item.note}
                self._run.end(State.STOPPED, sentence % values)
                return
        self._run.end(State.DONE)

    def _may_go_on(self) -> bool:
        now = self._clock()
        if now - self._beat_at >= HEARTBEAT_S:
            self._beat_at = now
            Run.objects.filter(pk=self._run.pk).update(heartbeat_at=timezone.now())
        wished = Run.objects.filter(pk=self._run.pk, state=State.RUNNING, cancel_requested=False)
        return wished.exists()

    def _send(self, item: Item) -> Outcome:
        queue = BrokerQueue(item.broker_name, item.queue_id)
        try:
            came = gateway().repair.copies(names.dlq_topic(item.group), queue, item.queue_offset, 1)
            copy = came.messages[0] if came.messages else None
            if copy is None or place_of(copy) != item.place:
                item.become(Outcome.GONE)
                return Outcome.GONE
            topic, table = again(copy, self._run)
            target = self._next_queue(topic)
        except GatewayError as error:
            item.become(Outcome.FAILED, error.what)
            return Outcome.FAILED
        item.become(Outcome.SENDING)
        try:
            offset = gateway().repair.resend(copy, target, table)
        except RequestFailedError as error:
            item.become(Outcome.FAILED, error.what)
            return Outcome.FAILED
        except GatewayError as error:
            # It may have arrived: only its answer did not.
            item.become(Outcome.UNKNOWN, error.what)
            return Outcome.UNKNOWN
        item.become(Outcome.SENT, f"{topic} {target.broker_name}:{target.queue_id} · {offset}")
        return Outcome.SENT

    def _next_queue(self, topic: str) -> MessageQueue:
        if topic not in self._queues:
            self._queues[topic] = gateway().repair.writable(topic) if topic else ()
        queues = self._queues[topic]
        if not queues:
            raise GatewayError(
                _("Topic %(topic)s takes no messages.") % {"topic": topic}
                if topic
                else _("The dead letter does not say which topic it was sent to.")
            )
        return queues[self._sent % len(queues)]


def place_of(copy: MessageCopy) -> tuple[str, int, int, int]:
    stored = copy.stored
    return stored.broker_name, stored.queue_id, stored.queue_offset, stored.commit_log_offset


def again(copy: MessageCopy, run: Run) -> tuple[str, Mapping[str, str]]:
    """Return the topic that a dead letter is sent to, and its properties there.

    It keeps its unique key, by which it remains the same message.
    """
    properties = copy.stored.properties
    table = {key: value for key, value in properties.items() if key not in LEFT_OUT}
    table[PROPERTY_REPLAYED] = str(run.pk)
    topic = origin_topic(properties)
    if run.target == Target.ORIGIN:
        table.pop(names.PROPERTY_RETRY_TOPIC, None)
        return topic, table
    # A client shows its listener the topic that this names.
    if topic:
        table[names.PROPERTY_RETRY_TOPIC] = topic
    return names.retry_topic(run.group), table


def perform(run: Run) -> None:
    """Send a run's dead letters to its end; the page never shows one that runs for ever."""
    try:
        Replayer(run).run()
    except Exception:
        # The boundary of a thread: whatever fails here, somebody reads it on the page.
        logger.exception("replay failed: run=%s group=%s", run.pk, run.group)
        run.end(State.STOPPED, _("An error of the console; its log says which."))
    finally:
        connections.close_all()
        logger.info("replay ended: run=%s group=%s", run.pk, run.group)


def launch(run: Run) -> None:
    """Run in a thread of this process, which may end at any time."""
    threading.Thread(target=perform, args=(run,), name=f"replay-{run.pk}", daemon=True).start()
