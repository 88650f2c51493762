"""Render docs/results for the pages: one function for each marked part."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from tools.results import documents
from tools.results.documents import (
    Comparison,
    FaultRun,
    FuzzRun,
    Growth,
    Measured,
    MutationSample,
    Soak,
    SteadyLoad,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from tools.results.documents import CellResult, Spread

OURS, PYTHON, BASE = "ours", "python", "4.9.7"
BROKERS = {
    OURS: "Trebuchet",
    PYTHON: "Trebuchet, pure Python",
    "ours x2": "Trebuchet, 2 brokers",
    BASE: "RocketMQ 4.9.7",
    "5.3.3": "RocketMQ 5.3.3",
    "kafka": "Kafka 4.1.2",
    "kafka batched": "Kafka 4.1.2, 32 a request",
    "floor": "floor",
}
"""Headings of the brokers, by their names on the command line of tools.bench."""
SENDS = ("send-1", "send-64", "send-256", "send-16x16", "send-64x1", "small-4x64")
PULLS = ("pull-32", "pull-1", "pull-tag")
FLUSHED = ("flush-1", "flush-64", "flush-16x16")
SEVERAL = "several commits"
FAULTS = {
    "kill": "kill -9 of the broker",
    "kill-store": "kill -9 of a store process",
    "clients": "kill -9 of the broker, client libraries only",
    "power": "power cut",
    "flush-error": "every flush fails with EIO, then a power cut",
    "flip": "one flipped bit",
    "partition": "partition or bad link between a master and its slave",
    "promotion": "kill -9 of a master, promotion, return of the old one",
    "slave-kill": "kill -9 or power cut of the slave of a `SYNC_MASTER`",
    "appliance": "kill -9 of each process of an appliance",
    "redis-outage": "Redis down for minutes",
    "simulate": "simulated brokers, disks, network and clients",
    "chaos": "all kinds of faults on a schedule",
}
PROCESSES = {"up": "`deploy/up`", "redis": "Redis"}


def comparison(folder: Path) -> str:
    """The table of docs/performance.md."""
    found = documents.read(folder, "comparison", Comparison)
    took_part = {name for cell in found.cells for name in cell.brokers}
    names = [name for name in BROKERS if name in took_part]
    ratio = f"cost and rate relative to {BASE}"
    heads = ["cell", *(BROKERS[name] for name in names), ratio, "target"]
    rows = [
        [
            cell.name,
            *(_figures(cell, name) for name in names),
            _ratio(cell),
            _target(cell),
        ]
        for cell in found.cells
    ]
    for title, unit, table in (
        ("start", "s", found.start_seconds),
        ("own memory", "MB", found.memory_mb),
    ):
        for state, values in table.items():
            shown = [f"{values[name]:.1f} {unit}" if name in values else "-" for name in names]
            rows.append([f"{title}, {state}", *shown, "", ""])
    return f"{_stamp(found.command, found.machine)}\n\n{_table(heads, rows)}"


def _figures(cell: CellResult, name: str) -> str:
    found = cell.brokers.get(name)
    if found is None:
        return "-"
    return f"{found.cost_us:.1f} µs; {found.rate:,.0f}/s; {found.p99_ms:.2f} ms"


def _ratio(cell: CellResult) -> str:
    ratio = cell.ratios.get(OURS)
    return "" if ratio is None else f"{ratio.cost:.2f}, {ratio.rate or 0.0:.2f}"


def _target(cell: CellResult) -> str:
    words = [f"cost ≤ {cell.target.cost:g}"] if cell.target.cost else []
    words += [f"rate ≥ {cell.target.rate:g}"] if cell.target.rate else []
    mark = {True: ": met", False: ": **missed**", None: ""}[cell.is_reached(OURS)]
    return ", ".join(words) + mark


def readme(folder: Path) -> str:
    """The paragraph of README: the cost of a message compared with RocketMQ 4.9.7."""
    found = documents.read(folder, "comparison", Comparison)
    transaction = found.cell("transaction").ratios[OURS].cost
    ours, theirs = (found.cell("end-to-end").brokers[name].p99_ms for name in (OURS, BASE))
    memory = found.memory_mb["under load"]
    start = found.start_seconds["a store of 4 GiB"]
    return (
        f"On two cores, a send takes {_percents(found, SENDS)} of the processor time that RocketMQ "
        f"{BASE} takes, a pull {_percents(found, PULLS)}, a transaction {transaction:.0%}, and a "
        f"send that is flushed before it's acknowledged {_percents(found, FLUSHED)}. End to end, "
        f"the p99 latency is {ours:.1f} ms instead of {theirs:.1f} ms. The broker uses "
        f"{memory[OURS]:.0f} MB of memory instead of {memory[BASE]:.0f} MB under load, and starts "
        f"with a store of 4 GiB in {start[OURS]:.1f} s instead of {start[BASE]:.1f} s "
        f"({found.machine['date']})."
    )


def _percents(found: Comparison, keys: Iterable[str]) -> str:
    costs = [found.cell(key).ratios[OURS].cost * 100 for key in keys]
    return f"{min(costs):.0f} to {max(costs):.0f}%"


def missed(folder: Path) -> str:
    """The sentence of docs/performance.md that names the cells short of their target."""
    found = documents.read(folder, "comparison", Comparison)
    names = [f"*{cell.name}*" for cell in found.cells if cell.is_reached(OURS) is False]
    count = sum(cell.is_reached(OURS) is not None for cell in found.cells)
    if not names:
        return f"All {count} cells with a target meet it."
    return f"{len(names)} of {count} cells with a target miss it: {', '.join(names)}."


def growth(folder: Path) -> str:
    """The table of docs/results: the cost of a message as a broker grows."""
    rows = [
        [
            row.subject,
            row.size,
            BROKERS[row.broker],
            f"{row.small:,.2f}",
            f"{row.grown:,.2f} {row.unit}",
            _change(row),
            {True: "met", False: "**missed**", None: "-"}[row.is_reached],
            _source(row),
        ]
        for row in documents.read_rows(folder, "growth", Growth)
    ]
    heads = ["growth", "from, to", "broker", "small", "grown", "change", "target", "measured"]
    return _table(heads, rows)


def _change(row: Growth) -> str:
    if row.between is None:
        return f"{row.change:+.0%}"
    least, most = row.between
    return f"{row.change:+.0%} ({least:+.0%} to {most:+.0%})"


def growth_summary(folder: Path) -> str:
    """The list of docs/performance.md: the largest measured size of each subject."""
    rows = [
        row
        for row in documents.read_rows(folder, "growth", Growth)
        if row.broker == OURS and "request" not in row.unit
    ]
    largest = {row.subject: row for row in rows}
    lines = [
        f"- {row.subject}, {row.size}: {row.change:+.0%}"
        + {True: " (target met)", False: " (target missed)", None: ""}[row.is_reached]
        for row in largest.values()
    ]
    return "\n".join(lines)


def steady_load(folder: Path) -> str:
    """The table of docs/results: latencies and memory under a steady load."""
    rows = []
    for row in documents.read_rows(folder, "steady_load", SteadyLoad):
        memory = "-" if row.memory_mb is None else f"{row.memory_mb[0]:.1f}, {row.memory_mb[1]:.1f}"
        rows.append(
            [
                BROKERS[row.broker],
                f"{row.rate:,.0f}/s for {round(row.minutes, 1):g} min",
                "-" if row.p50_ms is None else f"{row.p50_ms:.2f}",
                *(_spread(values) for values in (row.p99_ms, row.p999_ms, row.roll_ms)),
                memory,
                _source(row),
            ]
        )
    heads = ["broker", "load", "p50 ms", "p99 ms", "p99.9 ms", "at a roll, ms", "memory, MB"]
    return _table([*heads, "measured"], rows)


def _spread(values: Spread | None) -> str:
    if values is None:
        return "-"
    least, middle, most = values
    return f"{least:g} to {most:g}" + ("" if middle is None else f", median {middle:g}")


def faults(folder: Path) -> str:
    """The table of docs/reliability.md: one row for all runs of a fault, variant and broker."""
    rows = []
    found = documents.read_rows(folder, "faults", FaultRun)
    for (fault, variant, broker), group in groupby(_in_order(found), key=_subject):
        runs = list(group)
        counts = documents.totals(runs)
        rows.append(
            [
                f"{FAULTS[fault]}: {variant}" if variant else FAULTS[fault],
                BROKERS[broker],
                f"{counts['cycles']:,}",
                *(_count(counts, name) for name in ("acknowledged", "lost", "phantom")),
                f"{_count(counts, 'explained')}, {_count(counts, 'unexplained')}",
                _recovered(runs),
                _measured(runs),
            ]
        )
    heads = [
        "fault",
        "broker",
        "faults",
        "acknowledged",
        "lost",
        "phantom",
        "duplicates, unexplained",
    ]
    return _table([*heads, "recovered", "measured"], rows)


def _in_order(rows: Iterable[FaultRun]) -> list[FaultRun]:
    places = list(FAULTS)
    return sorted(rows, key=lambda row: places.index(row.fault))


def _subject(row: FaultRun) -> tuple[str, str, str]:
    return row.fault, row.variant, row.broker


def _count(counts: dict[str, int], name: str) -> str:
    return f"{counts[name]:,}" if name in counts else "-"


def _recovered(runs: Sequence[FaultRun]) -> str:
    """Return the slowest of several runs: median, then p99 or the longest."""
    words: list[str] = []
    for name, text in (("p50", ""), ("p99", ""), ("max", " at most")):
        values = [getattr(run, f"recovered_{name}_s") for run in runs]
        known = [value for value in values if value is not None]
        if known and len(words) < 2:
            words.append(f"{max(known):.2f} s{text}")
    return ", ".join(words) or "-"


def _measured(runs: Sequence[FaultRun]) -> str:
    commits = {run.commit for run in runs}
    return _source(runs[0]) if len(commits) == 1 else f"{max(run.date for run in runs)}, {SEVERAL}"


def fault_runs(folder: Path) -> str:
    """The list of docs/results: the command of each run."""
    rows = [
        [f"`{row.command}`", _source(row), row.machine, f"{row.cycles:,}", f"{row.lost or 0:,}"]
        for row in _in_order(documents.read_rows(folder, "faults", FaultRun))
    ]
    return _table(["command", "measured", "machine", "faults", "lost"], rows)


def soak(folder: Path) -> str:
    """The sentences of docs/reliability.md about the last soak."""
    found = documents.read(folder, "soak", Soak)
    level = sum(one.is_level for one in found.quantities)
    rising = [f"{one.process} {one.what}" for one in found.quantities if not one.is_level]
    not_level = f"; {', '.join(rising)} weren't" if rising else ""
    return (
        f"`{found.command}` ({found.machine['date']}, {found.machine['commit'][:7]}): "
        f"{found.acknowledged:,} messages acknowledged at {found.rate:g} per second in "
        f"{found.minutes:.0f} minutes, {found.lost} lost, {found.delivered:,} delivered, "
        f"{found.explained:,} second deliveries explained and {found.unexplained} unexplained; "
        f"{found.restarts} restarts, {found.members} consumers that came and went, "
        f"{found.pages:,} pages read, {found.reports} reports. "
        f"{level} of {len(found.quantities)} quantities were level{not_level}."
    )


def soak_quantities(folder: Path) -> str:
    """The table of docs/results: each quantity of the last soak."""
    rows = [
        [
            PROCESSES.get(one.process, one.process),
            one.what,
            _amount(one.second, one.unit),
            _amount(one.last, one.unit),
            f"{one.minutes:.0f} min",
            "yes" if one.is_level else "**no**",
        ]
        for one in documents.read(folder, "soak", Soak).quantities
    ]
    return _table(["process", "what", "second fifth", "last fifth", "life", "level"], rows)


def _amount(value: float, unit: str) -> str:
    return f"{value:,.1f} {unit}" if unit else f"{value:,.0f}"


def mutation(folder: Path) -> str:
    """The table of docs/results: samples of changes, and how many the tests caught."""
    rows = [
        [
            f"`{row.place}`",
            f"{row.sample}, {row.seed}",
            f"{row.caught}",
            f"{row.survived}",
            f"{row.equivalent}",
            f"{row.share:.1%}",
            _source(row),
        ]
        for row in documents.read_rows(folder, "mutation", MutationSample)
    ]
    heads = [
        "package",
        "sample, seed",
        "caught",
        "survived",
        "change nothing",
        "caught of the rest",
    ]
    return _table([*heads, "measured"], rows)


def mutation_summary(folder: Path) -> str:
    """The sentence of docs/reliability.md about mutation testing."""
    rows = documents.read_rows(folder, "mutation", MutationSample)
    shares = [f"{row.share:.0%} for `{row.place}`" for row in rows]
    return f"Of the changes that change something, the unit tests caught {', '.join(shares)}."


def fuzz(folder: Path) -> str:
    """The sentences of docs/reliability.md about fuzzing."""
    lines = [
        f"- {row.what}: {row.inputs:,} inputs, "
        f"{'guided by coverage' if row.is_guided else 'at random'}, "
        f"{_counted(row.findings, 'finding')} (`{row.command}`; {_source(row)})"
        for row in documents.read_rows(folder, "fuzz", FuzzRun)
    ]
    return "\n".join(lines)


PARTS: dict[str, Callable[[Path], str]] = {
    "readme": readme,
    "comparison": comparison,
    "missed": missed,
    "growth": growth,
    "growth-summary": growth_summary,
    "steady-load": steady_load,
    "faults": faults,
    "fault-runs": fault_runs,
    "soak": soak,
    "soak-quantities": soak_quantities,
    "mutation": mutation,
    "mutation-summary": mutation_summary,
    "fuzz": fuzz,
}
"""The functions, by the name in a page's marker."""


def _source(row: Measured) -> str:
    """Return the date of a measurement, and its commits if they were recorded."""
    return ", ".join([row.date, *(one[:7] for one in row.commit.split(", ") if one)])


def _counted(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


def _stamp(command: str, machine: dict[str, str]) -> str:
    return f"`{command}`: {', '.join(f'{name} {value}' for name, value in machine.items())}."


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
