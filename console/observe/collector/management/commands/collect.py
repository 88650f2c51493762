"""`manage.py collect`: sample every broker every ten seconds, until a signal arrives."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from console.gateway.access import gateway
from console.lib.moment import now_ms
from console.observe.alerts.courier import Courier
from console.observe.alerts.evaluator import Evaluator
from console.observe.collector.collector import Collector, SystemTime, monotonic_ms
from console.observe.collector.hours import FOLDER, HourFiles
from console.observe.history.access import history_store
from console.observe.history.database import HistoryError
from console.observe.verdicts.judge import Judge

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

    from console.observe.collector.collector import Facts, Writing
    from console.observe.history.metrics import Subject
    from console.observe.history.store import HistoryStore

READY = "collecting"


def _hours(store: HistoryStore) -> Writing:
    """Return a function that writes complete hours, if a lake ingests them."""
    if not settings.TREBUCHET_LAKE:
        return lambda _now: iter(())
    return HourFiles(store, settings.TREBUCHET_DATA / FOLDER).write


class Command(BaseCommand):
    """Runs the collector in the foreground."""

    help = "Record the history of every broker with a sample every ten seconds"
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        store = history_store()
        try:
            with store.database.lock():
                judge, alerts = Judge(store), Evaluator(store, monotonic_ms)

                def look(at_ms: int, noticed: Mapping[Subject, int], facts: Facts) -> None:
                    try:
                        judge.judge(at_ms, noticed, facts)
                    finally:
                        alerts.look(at_ms)

                courier = Courier(now_ms, monotonic_ms, alerts.is_well)
                collector = Collector(
                    gateway().samples,
                    store,
                    SystemTime(),
                    os.getpid(),
                    look,
                    _hours(store),
                )

                def stop(_number: int, _frame: FrameType | None) -> None:
                    collector.stop.set()

                signal.signal(signal.SIGTERM, stop)
                signal.signal(signal.SIGINT, stop)
                self.stdout.write(f"{READY}: one sample of every broker every 10 s")
                self.stdout.flush()
                courier.start()
                try:
                    collector.run()
                finally:
                    courier.end()
        except HistoryError as error:
            raise CommandError(str(error)) from error
        self.stdout.write("Collector stopped.")
