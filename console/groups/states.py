"""How a group reads: keeps up, falls behind, has stopped, stalls or reads again.

These are Burrow's states, by the verdicts' rules instead of a window of commits.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _, gettext_lazy

from console.history.access import history_store
from console.history.database import HistoryError
from console.history.metrics import GROUP, PROGRESS
from console.verdicts.judge import HELD_MS, verdicts_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.verdicts.judge import Verdict

logger = logging.getLogger(__name__)


class Reading(StrEnum):
    """How a group reads, from worst to best."""

    STOPPED = "stopped"
    STALLED = "stalled"
    BEHIND = "behind"
    REWOUND = "rewound"
    FINE = "fine"


OF_RULE = {
    "stopped": Reading.STOPPED,
    "no-consumer": Reading.STOPPED,
    "stalled": Reading.STALLED,
    "queue-stuck": Reading.STALLED,
    "falling-behind": Reading.BEHIND,
    "rewound": Reading.REWOUND,
}
RANK = {reading: rank for rank, reading in enumerate(Reading)}
LABELS = {
    Reading.STOPPED: gettext_lazy("stopped"),
    Reading.STALLED: gettext_lazy("stalled"),
    Reading.BEHIND: gettext_lazy("falling behind"),
    Reading.REWOUND: gettext_lazy("rewound"),
    Reading.FINE: gettext_lazy("keeps up"),
}
COLOURS = {
    Reading.STOPPED: "bad",
    Reading.STALLED: "bad",
    Reading.BEHIND: "warn",
    Reading.REWOUND: "warn",
    Reading.FINE: "ok",
}


@dataclass(frozen=True, slots=True)
class GroupState:
    """How a group reads; None: not known, for a reason. `topic` is where, `since_ms` since when."""

    reading: Reading | None
    reason: str = ""
    topic: str = ""
    since_ms: int | None = None

    @property
    def label(self) -> str:
        return "" if self.reading is None else str(LABELS[self.reading])

    @property
    def colour(self) -> str:
        return "" if self.reading is None else COLOURS[self.reading]


@dataclass(frozen=True, slots=True)
class GroupStates:
    """The states of all groups: the worst verdict of each; else `reason` says why none is known."""

    worst: Mapping[str, Verdict]
    reason: str = ""

    def of(self, group: str, *, has_committed: bool = True) -> GroupState:
        """Return the state of a group, which reads nothing yet where it never committed."""
        verdict = self.worst.get(group)
        if verdict is not None:
            topic = verdict.name.partition("@")[2]
            return GroupState(OF_RULE[verdict.rule], "", topic, verdict.since_ms)
        if self.reason:
            return GroupState(None, self.reason)
        if not has_committed:
            return GroupState(None, _("The group has no consumer offset yet."))
        return GroupState(Reading.FINE)

    def rank(self, group: str) -> int:
        """Return the place of a group in the order from worst to best."""
        verdict = self.worst.get(group)
        return RANK[Reading.FINE if verdict is None else OF_RULE[verdict.rule]]


def group_states(now_ms: int) -> GroupStates:
    """Return what the rules say of groups; nothing where they have not looked lately."""
    try:
        said = verdicts_of(history_store())
    except HistoryError as error:
        logger.warning("verdicts cannot be read: %s", error)
        return GroupStates({}, _("The history cannot be read."))
    if now_ms - said.at_ms >= HELD_MS:
        return GroupStates({}, _("The rules have not looked lately."))
    worst: dict[str, Verdict] = {}
    for verdict in said.verdicts:
        if verdict.kind not in {GROUP, PROGRESS} or verdict.rule not in OF_RULE:
            continue
        group = verdict.name.partition("@")[0]
        before = worst.get(group)
        if before is None or RANK[OF_RULE[verdict.rule]] < RANK[OF_RULE[before.rule]]:
            worst[group] = verdict
    return GroupStates(worst)
