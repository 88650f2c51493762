"""Run: one query that was asked, and what came of it, in a directory of its own.

Rows never reach the database: they are files, as JSON lines and as Parquet, of the newest runs.
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

from console.gateway.moment import now_ms
from console.masking.seeing import every_rule

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNS_KEPT = 50
SCHEDULED_KEPT = 20
QUERY, OUTCOME, ROWS, PARQUET = "query.json", "outcome.json", "rows.jsonl", "rows.parquet"
PRIVATE = 0o700


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a result; `kind` is how its cells are shown (analytics.query.cells)."""

    name: str
    type: str
    kind: str

    @property
    def is_number(self) -> bool:
        return self.kind in {"integer", "decimal", "float"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: done, failed or cancelled; `cut` names the limit that ended the rows."""

    state: str
    ended_ms: int
    sentence: str = ""
    columns: tuple[Column, ...] = ()
    rows: int = 0
    bytes: int = 0
    cut: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """A query that was asked.

    Attributes:
        topics: those that its rows may be of, by console.sql.rights.
        masks: the rules of masking that held then, under which its rows were read.
        scheduled: the number of the kept query that its schedule ran, 0 where a person asked.
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
        """Whether all that is hidden now was hidden when it read its rows."""
        return all(rule.as_kept in self.masks for rule in every_rule())

    @property
    def first_line(self) -> str:
        return " ".join(self.sql.split())[:160]

    def make(self) -> None:
        """Make its directory.

        Raises:
            OSError: the disk refuses.
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
        """Keep how it ended; readers see nothing of it, or all."""
        draft = self.directory / f"{OUTCOME}.new"
        found = {name: getattr(outcome, name) for name in Outcome.__slots__}
        found["columns"] = [[each.name, each.type, each.kind] for each in outcome.columns]
        draft.write_text(json.dumps(found), encoding="utf-8")
        draft.replace(self.directory / OUTCOME)

    def outcome(self) -> Outcome | None:
        """Return how it ended, None before that."""
        found = _read(self.directory / OUTCOME)
        if found is None:
            return None
        columns = tuple(Column(*each) for each in found.pop("columns"))
        return Outcome(**found, columns=columns)

    def rows(self, count: int | None = None) -> Iterator[list[Any]]:
        """Yield the first rows of the result, all without a number."""
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
    """Return a run that is kept."""
    found = _read(runs_directory() / run_id / QUERY)
    if found is None:
        return None
    # Runs of before there were rights to topics read all of them.
    topics = found.pop("topics", None)
    masks = tuple(found.pop("masks", ()))
    return Run(run_id, **found, topics=None if topics is None else tuple(topics), masks=masks)


def newest(user_id: int, count: int) -> list[Run]:
    """Return a person's newest runs, the newest first."""
    found = (run_of(path.parent.name) for path in runs_directory().glob(f"*/{QUERY}"))
    own = [run for run in found if run is not None and run.user_id == user_id and not run.scheduled]
    return sorted(own, key=lambda run: -run.began_ms)[:count]


def forget_old() -> None:
    """Keep the newest runs only: of those that people asked, and of each schedule."""
    found = (run_of(path.parent.name) for path in runs_directory().glob(f"*/{QUERY}"))
    seen: Counter[int] = Counter()
    for run in sorted((run for run in found if run is not None), key=lambda run: -run.began_ms):
        seen[run.scheduled] += 1
        if seen[run.scheduled] > (SCHEDULED_KEPT if run.scheduled else RUNS_KEPT):
            shutil.rmtree(run.directory, ignore_errors=True)


def lost() -> Outcome:
    """Return the end of a run whose console stopped meanwhile."""
    return Outcome("failed", 0, _("The console stopped while the query ran. Run it again."))


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
