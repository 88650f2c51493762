"""Publish fault runs as rows of docs/results/faults.json."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.faults import options, tested_brokers
from tools.faults.tally import Tally, quantile
from tools.results import documents, pages
from tools.results.documents import FaultRun
from tools.results.machine import provenance

if TYPE_CHECKING:
    from argparse import Namespace
    from pathlib import Path

    from tools.faults.checker import Report


def publish(
    arguments: Namespace,
    found: Tally,
    variant: str = "",
    *,
    broker: str = tested_brokers.OURS,
    is_a_store: bool = False,
) -> None:
    """Write a run into the folder given by `--write`; do nothing without one.

    A store alone has no clients.
    """
    folder: Path | None = arguments.write
    if folder is None:
        return
    row = FaultRun(
        **provenance("tools.faults"),
        fault=arguments.command,
        variant=", ".join(
            filter(None, (variant, "" if is_a_store else clients_of(arguments, broker)))
        ),
        broker=broker,
        cycles=found.cycles,
        acknowledged=found.acknowledged,
        lost=found.lost,
        phantom=found.phantom,
        explained=found.explained.total(),
        unexplained=found.unexplained,
        recovered_p50_s=_quantile(found.recovered, 0.5),
        recovered_p99_s=_quantile(found.recovered, 0.99),
        recovered_max_s=_quantile(found.recovered, 1.0),
        seed=arguments.seed,
    )
    documents.record(folder, "faults", [row])
    pages.render(folder)


def tally_of(report: Report, cycles: int, recovered: list[float]) -> Tally:
    """Return the columns of a run that has only a history."""
    found = Tally(cycles=cycles, recovered=recovered)
    found.add(report)
    return found


def clients_of(arguments: Namespace, broker: str) -> str:
    """Return the label of RocketMQ's own clients, empty if only raw clients took part."""
    takes_part = (
        getattr(arguments, "clients", options.RAW) == options.ALL and broker == tested_brokers.OURS
    )
    return "Java, Go and raw clients" if takes_part else ""


def _quantile(values: list[float], part: float) -> float | None:
    return round(quantile(values, part), 3) if values else None
