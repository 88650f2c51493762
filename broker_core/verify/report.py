"""The findings of a check."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

PROBLEMS_MAX = 1000


@dataclass
class Report:
    """The findings in a store directory; `problems` has the first PROBLEMS_MAX sentences."""

    store: str
    problems: list[str] = field(default_factory=list)
    problem_count: int = 0
    commit_log: dict[str, Any] = field(default_factory=dict)
    consume_queues: dict[str, Any] = field(default_factory=dict)
    index: dict[str, Any] = field(default_factory=dict)
    checkpoint: dict[str, int] = field(default_factory=dict)
    configuration: dict[str, str] = field(default_factory=dict)
    clean_exit: bool = True
    deleted: int = 0
    ahead: Counter[str] = field(default_factory=Counter)
    behind: Counter[str] = field(default_factory=Counter)
    unreachable: dict[str, dict[str, int]] = field(default_factory=dict)
    """Topics that have messages but aren't in topics.json."""
    ignored: list[str] = field(default_factory=list)
    """Entries that aren't files of a store; the first PROBLEMS_MAX."""

    @property
    def is_sound(self) -> bool:
        """Whether the check found no problem."""
        return self.problem_count == 0

    def add(self, where: Path, what: str) -> None:
        """Add a problem; `what` continues the path in a sentence."""
        self.problem_count += 1
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(f"{where}: {what}")

    def ignore(self, where: Path) -> None:
        """Note an entry that no store created, which the broker ignores."""
        if len(self.ignored) < PROBLEMS_MAX:
            self.ignored.append(str(where))

    def as_json(self) -> str:
        """Return the report as indented JSON."""
        return json.dumps(
            {
                "store": self.store,
                "sound": self.is_sound,
                "cleanExit": self.clean_exit,
                "commitLog": self.commit_log,
                "consumeQueues": self.consume_queues,
                "index": self.index,
                "checkpoint": self.checkpoint,
                "configuration": self.configuration,
                "recordsOfDeletedTopics": self.deleted,
                "ahead": self.ahead,
                "behind": self.behind,
                "unreachable": self.unreachable,
                "ignored": self.ignored,
                "problemCount": self.problem_count,
                "problems": self.problems,
            },
            indent=2,
        )
