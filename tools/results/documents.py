"""The files of docs/results: their structures, with strict reading and one way of writing."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FOLDER = "results"
Spread = tuple[float, float | None, float]
"""Lowest, median and highest value."""


class Document(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A part of a file; unknown fields are rejected."""


class Measured(Document, kw_only=True):
    """A row that says when, where and how it was measured.

    Attributes:
        commit: short hash; hashes with commas if the runs of one row used several commits; empty
            if not recorded.
        machine: processor, cores and other load; empty if not recorded.
    """

    date: str
    commit: str
    machine: str
    command: str


class Target(Document):
    """The target of a cell, as ratios to RocketMQ 4.9.7's figures; 0 without a target."""

    cost: float = 0.0
    rate: float = 0.0


class Figures(Document):
    """One broker's figures in a cell: medians of slices.

    Attributes:
        thread_us: processor time per message of each process's busiest thread.
        others_us: processor time per message of all other threads.
        rate: messages per second.
        p99_ms: of requests.
    """

    thread_us: float
    others_us: float
    rate: float
    p99_ms: float

    @property
    def cost_us(self) -> float:
        return self.thread_us + self.others_us


class Ratio(Document):
    """Ratios of a broker's figures to RocketMQ 4.9.7's: medians over neighbouring slices."""

    cost: float
    rate: float | None = None


class CellResult(Document):
    """One kind of load, by broker."""

    key: str
    name: str
    target: Target
    brokers: dict[str, Figures]
    ratios: dict[str, Ratio]

    def is_reached(self, broker: str) -> bool | None:
        """Whether a broker reaches the target; None without a target or a comparison."""
        ratio = self.ratios.get(broker)
        if ratio is None or not (self.target.cost or self.target.rate):
            return None
        is_cheap = not self.target.cost or ratio.cost <= self.target.cost
        return is_cheap and (ratio.rate is None or ratio.rate >= self.target.rate)


class Comparison(Document):
    """comparison.json: Trebuchet compared with other brokers; written by `tools.bench`."""

    command: str
    machine: dict[str, str]
    cells: list[CellResult]
    start_seconds: dict[str, dict[str, float]]
    """By state of the store, then by broker."""
    memory_mb: dict[str, dict[str, float]]
    """By state of the broker, then by broker."""

    def cell(self, key: str) -> CellResult:
        return next(cell for cell in self.cells if cell.key == key)


class Growth(Measured, kw_only=True):
    """A row of growth.json: a broker's cost per message before and after it grew."""

    broker: str
    subject: str
    size: str
    unit: str
    small: float
    grown: float
    change: float
    """Median of the ratios of neighbouring slices, minus 1."""
    between: tuple[float, float] | None
    """The 95% confidence interval of the median."""
    is_reached: bool | None


class SteadyLoad(Measured, kw_only=True):
    """A row of steady_load.json: a broker under a steady load.

    Attributes:
        p99_ms, p999_ms, roll_ms: lowest, median and highest of all slices of ten seconds.
        memory_mb: medians of the first and the second half.
    """

    broker: str
    rate: float
    minutes: float
    p50_ms: float | None
    p99_ms: Spread
    p999_ms: Spread
    roll_ms: Spread | None
    memory_mb: tuple[float, float] | None


class FaultRun(Measured, kw_only=True):
    """A row of faults.json: one run of `tools.faults`; None if the run doesn't count a figure."""

    fault: str
    variant: str
    broker: str
    cycles: int
    acknowledged: int | None = None
    lost: int | None = None
    phantom: int | None = None
    explained: int | None = None
    unexplained: int | None = None
    recovered_p50_s: float | None = None
    recovered_p99_s: float | None = None
    recovered_max_s: float | None = None
    seed: int | None = None


class Quantity(Document):
    """A soak's figures for a process in the second and the last fifth of its longest life."""

    process: str
    what: str
    unit: str
    second: float
    last: float
    minutes: float
    is_level: bool


class Soak(Document):
    """soak.json: an appliance under load for hours; written by `tools.soak`."""

    command: str
    machine: dict[str, str]
    minutes: float
    rate: float
    acknowledged: int
    delivered: int
    lost: int
    explained: int
    unexplained: int
    restarts: int
    members: int
    pages: int
    reports: int
    quantities: list[Quantity]


class MutationSample(Measured, kw_only=True):
    """A row of mutation.json: how many changes of a sample the tests caught."""

    place: str
    tests: str
    sample: int
    seed: int
    caught: int
    survived: int
    equivalent: int

    @property
    def share(self) -> float:
        """Return the share of the effective changes that the tests caught."""
        return self.caught / (self.caught + self.survived)


class FuzzRun(Measured, kw_only=True):
    """A row of fuzz.json: inputs given to decoders."""

    what: str
    inputs: int
    findings: int
    is_guided: bool
    seed: int


ROWS: dict[str, tuple[type[Document], tuple[str, ...]]] = {
    "growth": (Growth, ("broker", "subject", "size", "unit")),
    "steady_load": (SteadyLoad, ("broker", "minutes")),
    "faults": (FaultRun, ("fault", "variant", "broker")),
    "mutation": (MutationSample, ("place",)),
    "fuzz": (FuzzRun, ("what", "is_guided")),
}
"""Files that are lists, with the fields that identify the subject of a row."""
WHOLE: dict[str, type[Document]] = {"comparison": Comparison, "soak": Soak}
AnyDocument = TypeVar("AnyDocument", bound=Document)


def path_of(documents: Path, name: str) -> Path:
    """Return a file's path below the folder of documents."""
    return documents / FOLDER / f"{name}.json"


def read(documents: Path, name: str, kind: type[AnyDocument]) -> AnyDocument:
    """Return a whole document.

    Raises:
        msgspec.ValidationError: the file isn't a document of this kind.
    """
    return msgspec.json.decode(path_of(documents, name).read_bytes(), type=kind)


def read_rows(documents: Path, name: str, kind: type[AnyDocument]) -> list[AnyDocument]:
    """Return the rows of a file, empty if it doesn't exist."""
    path = path_of(documents, name)
    return msgspec.json.decode(path.read_bytes(), type=list[kind]) if path.exists() else []  # type: ignore[valid-type]


def write(documents: Path, name: str, document: Document | Iterable[Document]) -> None:
    """Write a file with indentation, for readers and diffs."""
    content = document if isinstance(document, Document) else list(document)
    path = path_of(documents, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")


def record(documents: Path, name: str, rows: Iterable[Document]) -> None:
    """Add rows to a file, and remove older rows with the same subject.

    Rows of one commit with different seeds are all kept.
    """
    kind, subject = ROWS[name]
    found = read_rows(documents, name, kind)
    for row in rows:
        place = next((at for at, old in enumerate(found) if _is_about(subject, old, row)), None)
        found = [old for old in found if not (_is_about(subject, old, row) and _ends(old, row))]
        found.insert(len(found) if place is None else min(place, len(found)), row)
    write(documents, name, found)


def _is_about(subject: Iterable[str], old: Document, new: Document) -> bool:
    return all(getattr(old, name) == getattr(new, name) for name in subject)


def _ends(old: Document, new: Document) -> bool:
    """Whether a new row replaces an old one with the same subject."""
    of_old, of_new = (
        (getattr(row, "commit", ""), getattr(row, "seed", None)) for row in (old, new)
    )
    return of_old[0] != of_new[0] or of_old[1] == of_new[1]


def totals(rows: Iterable[FaultRun]) -> Counter[str]:
    """Add up the counts of runs; leave out a count that no run has."""
    found: Counter[str] = Counter()
    for row in rows:
        for name in ("cycles", "acknowledged", "lost", "phantom", "explained", "unexplained"):
            value = getattr(row, name)
            if value is not None:
                found[name] += value
    return found
