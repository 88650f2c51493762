"""Sends the messages in the outbox, in order for each channel, in a thread of the collector.

A message is marked as sent after the response arrives. If the process dies in between, it is sent
again with the same ID, so delivery is at least once. The first pending message blocks the messages
behind it for as long as a retry might help.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from django.db import DatabaseError, connection
from django.db.models import Min

from broker_core.isolation import FAILURES, isolated
from console.observe.alerts.delivering import Outcome, deliver
from console.observe.alerts.heartbeat import Heartbeat
from console.observe.alerts.models import Channel, Message

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
BACKOFF_MS_MIN, BACKOFF_MS_MAX = 10_000, 600_000
TRIES_MAX = 450
"""Three days of retries."""
REFUSED_TRIES_MAX = 5
"""A receiver may reject messages for a few minutes while it is being reconfigured."""
PACE_MS: dict[str, int] = {Channel.Kind.DINGTALK: 3_000, Channel.Kind.SLACK: 1_000}
"""DingTalk accepts 20 messages per minute, Slack one per second."""


class Courier:
    """Call `run` in a dedicated thread; it returns when `stop` is set."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
        is_collecting: Callable[[], bool],
    ) -> None:
        """`is_collecting` returns whether a heartbeat may be sent."""
        self.stop = threading.Event()
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        self._paced: dict[int, int] = {}
        self._heartbeat = Heartbeat(now_ms, monotonic_ms, is_collecting)
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        for name, work in (("courier", self.turn), ("heartbeat", self._heartbeat.turn)):
            thread = threading.Thread(target=self._run, args=[work], name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def end(self, seconds: float = 2.0) -> None:
        """Stop; the next process may send a message in progress again."""
        self.stop.set()
        for thread in self._threads:
            thread.join(seconds)

    def _run(self, work: Callable[[], None]) -> None:
        while not self.stop.is_set():
            try:
                work()
            except DatabaseError as error:
                connection.close()
                logger.warning("alert outbox unreadable error=%s", error)
            except Exception as error:  # noqa: BLE001  without this thread no alerts are sent
                FAILURES.report("sending alerts", work, error)
            self.stop.wait(LOOK_EVERY_S)
        connection.close()

    def turn(self) -> None:
        """Try the first message of each channel whose message is due."""
        firsts = (
            Message.objects.filter(state=Message.State.WAITING, channel__enabled=True)
            .order_by()
            .values("channel")
            .annotate(first=Min("id"))
        )
        numbers = [each["first"] for each in firsts]
        for message in (
            Message.objects.filter(pk__in=numbers).select_related("channel").order_by("pk")
        ):
            if self.stop.is_set():
                return
            with isolated("delivering an alert", message.pk) as one:
                if self._is_due(message):
                    self._try(message)
            if isinstance(one.error, DatabaseError):
                raise one.error

    def _is_due(self, message: Message) -> bool:
        wait = message.next_ms - self._now_ms()
        # A wait beyond the maximum means that the clock was set back.
        if 0 < wait <= BACKOFF_MS_MAX:
            return False
        return self._monotonic_ms() >= self._paced.get(message.channel_id, 0)

    def _try(self, message: Message) -> None:
        now = self._now_ms()
        try:
            outcome = deliver(message, now)
        except Exception:
            # Boundary: a message that can't be rendered must not block all others.
            logger.exception("alert message not created message=%d", message.pk)
            outcome = Outcome(False, "internal error; see the collector's log", is_refused=True)
        # The text, because a later version may have stored a kind that this one lacks.
        pace = PACE_MS.get(message.channel.kind, 0)
        self._paced[message.channel_id] = self._monotonic_ms() + pace
        tries = message.tries + 1
        values = {"tries": tries, "last_ms": now, "outcome": outcome.what[:400]}
        limit = REFUSED_TRIES_MAX if outcome.is_refused else TRIES_MAX
        if outcome.arrived:
            values["state"] = Message.State.SENT
        elif tries >= limit or message.content.get("status") == "test":
            values["state"] = Message.State.FAILED
        else:
            values["next_ms"] = now + wait_ms(tries, outcome.retry_after_s)
        Message.objects.filter(pk=message.pk).update(**values)
        self._log_change(message, tries, outcome)

    def _log_change(self, message: Message, tries: int, outcome: Outcome) -> None:
        """Log changes: the first failure, and the first result after a failure."""
        if outcome.arrived and tries > 1:
            logger.info("alert channel works again channel=%r", message.channel.name)
        elif not outcome.arrived and tries == 1:
            logger.warning(
                "alert message not delivered message=%d channel=%r reason=%s",
                message.pk,
                message.channel.name,
                outcome.what,
            )


def wait_ms(tries: int, retry_after_s: int | None) -> int:
    """Return the wait after a number of tries, doubled each time within limits."""
    wait = BACKOFF_MS_MIN << min(tries - 1, 10)
    if retry_after_s is not None:
        wait = max(wait, retry_after_s * 1_000)
    return min(wait, BACKOFF_MS_MAX)
