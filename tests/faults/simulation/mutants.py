"""Mutants: brokers that are wrong on purpose, for a simulation to find."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any
from unittest import mock

from broker_core.delay.due_times import DueTimes
from broker_core.ha.master import HaMaster
from broker_core.store import put
from broker_core.store.acknowledge import Acknowledgement
from broker_core.store.results import PutMessageStatus
from tests.support.faulty_storage import FaultyFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

ANY_END = 1 << 62
EARLY_MS = 200
EVERY_NTH_UNIT = 40


def _flushes_nothing() -> AbstractContextManager[object]:
    return mock.patch.object(FaultyFile, "fdatasync", return_value=None)


def _acknowledges_before_the_flush() -> AbstractContextManager[object]:
    def tell_together(self: Acknowledgement, end: int, waiter: Any, put_at: float) -> None:
        waiter.end(PutMessageStatus.PUT_OK)

    return mock.patch.multiple(Acknowledgement, tell=lambda *_: False, tell_together=tell_together)


def _takes_a_connection_for_a_report() -> AbstractContextManager[object]:
    def replicated_where(self: HaMaster, slaves: int) -> int:
        return ANY_END if self.connections() else -1

    return mock.patch.object(HaMaster, "replicated_where", replicated_where)


def _skips_units() -> AbstractContextManager[object]:
    numbers, pack = itertools.count(1), put.pack_unit_into

    def pack_most(*arguments: Any) -> None:
        if next(numbers) % EVERY_NTH_UNIT:
            pack(*arguments)

    return mock.patch.object(put, "pack_unit_into", pack_most)


def _delivers_early() -> AbstractContextManager[object]:
    due_ms = DueTimes.due_ms

    def earlier(self: DueTimes, queue_offset: int, deliver_time_ms: int) -> int:
        return due_ms(self, queue_offset, deliver_time_ms) - EARLY_MS

    return mock.patch.object(DueTimes, "due_ms", earlier)


MUTANTS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "flushes nothing": _flushes_nothing,
    "acknowledges before the flush": _acknowledges_before_the_flush,
    "takes a connection for a report": _takes_a_connection_for_a_report,
    "skips units": _skips_units,
    "delivers early": _delivers_early,
}
