"""Replays dead letters one after the other in a thread of the web process.

Each item is marked before and after it is sent. If the process ends in between, the page says that
this message may have been sent, and the rest stays pending.
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
from console.gateway.access import gateway
from console.gateway.errors import GatewayError, RequestFailedError
from console.lib.stored import BrokerQueue
from console.messages.dead_letters.models import Outcome, Run, State, Target
from console.messages.dead_letters.reading import PROPERTY_DLQ_ORIGIN_TOPIC, origin_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from console.gateway.answers import MessageQueue
    from console.gateway.copies import MessageCopy
    from console.messages.dead_letters.models import Item

logger = logging.getLogger(__name__)

FAILURES_IN_A_ROW_MAX = 5
HEARTBEAT_S = 2.0
RUNS_AT_ONCE_MAX = 3
PROPERTY_REPLAYED = "TREBUCHET_REPLAY"
"""The message property with the ID of the run that sent it."""
# Properties of the earlier delivery, which would be wrong for the new one.
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
    """Sends one run's dead letters. `wait` returns whether the process is shutting down."""

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
        """Send pending messages until all are sent, the run is cancelled, or too many fail.

        Runs with the console's own rights: people can replay messages whose bodies they may not
        read.
        """
        failures = 0
        began = self._clock()
        waiting = self._run.items.filter(outcome=Outcome.WAITING)
        for item in list(waiting):
            if not self._can_continue():
                self._run.end(State.STOPPED, _("The replay was cancelled."))
                return
            if self._sent:
                # Relative to the start, so that pauses don't add up to a lower rate.
                due = began + self._sent / self._run.rate
                self._wait(max(0.0, due - self._clock()))
            outcome = self._send(item)
            self._sent += 1
            failures = failures + 1 if outcome in (Outcome.FAILED, Outcome.UNKNOWN) else 0
            if failures >= FAILURES_IN_A_ROW_MAX:
                sentence = _("%(count)d messages in a row failed. The last error: %(why)s")
                values = {"count": failures, "why": item.note}
                self._run.end(State.STOPPED, sentence % values)
                return
        self._run.end(State.DONE)

    def _can_continue(self) -> bool:
        now = self._clock()
        if now - self._beat_at >= HEARTBEAT_S:
            self._beat_at = now
            Run.objects.filter(pk=self._run.pk).update(heartbeat_at=timezone.now())
        wished = Run.objects.filter(pk=self._run.pk, state=State.RUNNING, cancel_requested=False)
        return wished.exists()

    def _send(self, item: Item) -> Outcome:
        queue = BrokerQueue(item.broker_name, item.queue_id)
        try:
            copies = gateway().repair.copies(
                names.dlq_topic(item.group), queue, item.queue_offset, 1
            )
            copy = copies.messages[0] if copies.messages else None
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
            # The message may have been stored although the response didn't arrive.
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
                _("Topic %(topic)s doesn't accept messages.") % {"topic": topic}
                if topic
                else _("The dead letter doesn't contain its original topic.")
            )
        return queues[self._sent % len(queues)]


def place_of(copy: MessageCopy) -> tuple[str, int, int, int]:
    stored = copy.stored
    return stored.broker_name, stored.queue_id, stored.queue_offset, stored.commit_log_offset


def again(copy: MessageCopy, run: Run) -> tuple[str, Mapping[str, str]]:
    """Return the destination topic of a dead letter, and its new properties.

    The unique key stays the same, which identifies it as the same message.
    """
    properties = copy.stored.properties
    table = {key: value for key, value in properties.items() if key not in LEFT_OUT}
    table[PROPERTY_REPLAYED] = str(run.pk)
    topic = origin_topic(properties)
    if run.target == Target.ORIGIN:
        table.pop(names.PROPERTY_RETRY_TOPIC, None)
        return topic, table
    # A client shows its listener the topic in this property.
    if topic:
        table[names.PROPERTY_RETRY_TOPIC] = topic
    return names.retry_topic(run.group), table


def perform(run: Run) -> None:
    """Send a run's dead letters, and end the run even if an error occurs."""
    try:
        Replayer(run).run()
    except Exception:
        # Thread boundary: show any failure on the page.
        logger.exception("replay failed run=%s group=%s", run.pk, run.group)
        run.end(
            State.STOPPED, _("The console hit an internal error. See the console log for details.")
        )
    finally:
        connections.close_all()
        logger.info("replay ended run=%s group=%s", run.pk, run.group)


def launch(run: Run) -> None:
    """Run in a thread of this process, which may end at any time."""
    threading.Thread(target=perform, args=(run,), name=f"replay-{run.pk}", daemon=True).start()
