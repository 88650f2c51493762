"""Run: one executed query and its outcome, in its own directory.

Rows are never stored in the database. The newest runs keep them as JSON lines and Parquet files.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.utils.translation import gettext as _

from console.lib.moment import now_ms
from console.people.masking.access import every_rule

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNS_KEPT = 50
SCHEDULED_KEPT = 20
QUERY, OUTCOME, ROWS, PARQUET = "query.json", "outcome.json", "rows.jsonl", "rows.parquet"
PRIVATE = 0o700


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a result; `kind` is the cell format (analytics.query.cells)."""

    name: str
    type: str
    kind: str

    @property
    def is_number(self) -> bool:
        return self.kind in {"integer", "decimal", "float"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: done, failed or cancelled; `cut` is the limit that truncated the rows."""

    state: str
    ended_ms: int
    sentence: str = ""
    columns: tuple[Column, ...] = ()
    rows: int = 0
    bytes: int = 0
    cut: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """An executed query.

    Attributes:
        topics: the topics that its rows may come from (console.data.sql.rights).
        masks: the masking rules in force when its rows were read.
        scheduled: the ID of the saved query whose schedule ran it, 0 if a person ran it.
    """

    id: str
    sql: str
    zone: str
    user_id: int
    user_name: str
    topics: tuple[str, ...] | None
    scheduled: int = 0
    masks: tuple[dict[str, Any], ...] = ()
    began_ms: int = field(default_factory=now_ms)

    @property
    def directory(self) -> Path:
        return runs_directory() / self.id

    @property
    def is_masked(self) -> bool:
        """Whether everything that is masked now was already masked when the rows were read."""
        return all(rule.as_kept in self.masks for rule in every_rule())

    @property
    def first_line(self) -> str:
        return " ".join(self.sql.split())[:160]

    def make(self) -> None:
        """Create the directory.

        Raises:
            OSError: the directory can't be written.
        """
        runs_directory().mkdir(parents=True, exist_ok=True, mode=PRIVATE)
        self.directory.mkdir(mode=PRIVATE)
        text = json.dumps(
            {
                "sql": self.sql,
                "zone": self.zone,
                "user_id": self.user_id,
                "user_name": self.user_name,
                "topics": self.topics,
                "scheduled": self.scheduled,
                "masks": self.masks,
                "began_ms": self.began_ms,
            }
        )
        (self.directory / QUERY).write_text(text, encoding="utf-8")

    def end(self, outcome: Outcome) -> None:
        """Store the outcome atomically."""
        draft = self.directory / f"{OUTCOME}.new"
        found = {name: getattr(outcome, name) for name in Outcome.__slots__}
        found["columns"] = [[each.name, each.type, each.kind] for each in outcome.columns]
        draft.write_text(json.dumps(found), encoding="utf-8")
        draft.replace(self.directory / OUTCOME)

    def outcome(self) -> Outcome | None:
        """Return the outcome, or None while the query runs."""
        found = _read(self.directory / OUTCOME)
        if found is None:
            return None
        columns = tuple(Column(*each) for each in found.pop("columns"))
        return Outcome(**found, columns=columns)

    def rows(self, count: int | None = None) -> Iterator[list[Any]]:
        """Yield the first rows of the result, or all without a limit."""
        with (self.directory / ROWS).open("rb") as file:
            for line in islice(file, count):
                yield json.loads(line)


def new_run(
    sql: str,
    zone: str,
    user_id: int,
    user_name: str,
    topics: tuple[str, ...] | None,
    scheduled: int = 0,
) -> Run:
    masks = tuple(rule.as_kept for rule in every_rule())
    return Run(str(uuid.uuid4()), sql, zone, user_id, user_name, topics, scheduled, masks)


def runs_directory() -> Path:
    return Path(settings.TREBUCHET_DATA) / "sql"


def run_of(run_id: str) -> Run | None:
    """Return a stored run."""
    found = _read(runs_directory() / run_id / QUERY)
    if found is None:
        return None
    # Runs from before topic rights read all topics.
    topics = found.pop("topics", None)
    masks = tuple(found.pop("masks", ()))
    return Run(run_id, **found, topics=None if topics is None else tuple(topics), masks=masks)


def newest(user_id: int, count: int) -> list[Run]:
    """Return a person's newest runs, newest first."""
    found = (run_of(path.parent.name) for path in runs_directory().glob(f"*/{QUERY}"))
    own = [run for run in found if run is not None and run.user_id == user_id and not run.scheduled]
    return sorted(own, key=lambda run: -run.began_ms)[:count]


def forget_old() -> None:
    """Keep only the newest runs: those started by people, and those of each schedule."""
    found = (run_of(path.parent.name) for path in runs_directory().glob(f"*/{QUERY}"))
    seen: Counter[int] = Counter()
    for run in sorted((run for run in found if run is not None), key=lambda run: -run.began_ms):
        seen[run.scheduled] += 1
        if seen[run.scheduled] > (SCHEDULED_KEPT if run.scheduled else RUNS_KEPT):
            shutil.rmtree(run.directory, ignore_errors=True)


def lost_outcome() -> Outcome:
    """Return the outcome of a run whose console stopped before it ended."""
    return Outcome("failed", 0, _("The console stopped while the query ran. Run it again."))


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
