"""A generated history: figures of some subjects at some times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from console.observe.history import store as stores
from console.observe.history.metrics import Column, Metric, Subject
from console.observe.history.points import MISSING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from console.observe.history.store import HistoryStore, Layout

    Rows = Mapping[tuple[Subject, Metric], Sequence[int | None]]

STEP_MS = 10_000


def layout_of(keys: Iterable[tuple[int, Column]]) -> tuple[Layout, NDArray[np.int64]]:
    """Return the layout for the given subject ids, and the order of its keys."""
    rows = [(subject, *column) for subject, column in keys]
    subjects, codes, parts = np.array(rows, dtype=np.int64).T
    return stores.layout_of(subjects, codes, parts)


def keep(store: HistoryStore, first_ms: int, rows: Rows, *, source: str = "broker-a:0") -> None:
    """Write one sample every ten seconds from `first_ms` on; None means unknown."""
    ids = store.subject_ids({subject for subject, _ in rows}, first_ms)
    layout, order = layout_of((ids[subject], Column(metric.code)) for subject, metric in rows)
    for index in range(max(len(values) for values in rows.values())):
        numbers = [
            MISSING if index >= len(values) or (value := values[index]) is None else value
            for values in rows.values()
        ]
        at = first_ms + index * STEP_MS
        sample = np.array(numbers, dtype=np.int64)[order]
        store.add_sample(source, at, STEP_MS, layout, sample, b"{}")
