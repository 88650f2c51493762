"""Consumption state of a group: keeping up, falling behind, stopped, stalled or rewound.

These are Burrow's states, derived from the verdict rules rather than a window of commits.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _, gettext_lazy

from console.observe.history.access import history_store
from console.observe.history.database import HistoryError
from console.observe.history.metrics import GROUP, PROGRESS
from console.observe.verdicts.judge import HELD_MS, verdicts_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.observe.history.reading import Spark
    from console.observe.verdicts.judge import Verdict

logger = logging.getLogger(__name__)


class Reading(StrEnum):
    """A group's consumption state, worst first."""

    STOPPED = "stopped"
    STALLED = "stalled"
    BEHIND = "behind"
    REWOUND = "rewound"
    GROWING = "growing"
    FINE = "fine"


GROWING_POINTS = 4
"""Minutes; the verdict rules use a longer window and react later."""
GROWN_MIN = 10
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
    Reading.GROWING: gettext_lazy("lag growing"),
    Reading.FINE: gettext_lazy("keeping up"),
}
COLOURS = {
    Reading.STOPPED: "bad",
    Reading.STALLED: "bad",
    Reading.BEHIND: "warn",
    Reading.REWOUND: "warn",
    Reading.GROWING: "info",
    Reading.FINE: "ok",
}


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group's state, or None with the reason; `topic` and `since_ms` are its place and start."""

    reading: Reading | None
    reason: str = ""
    topic: str = ""
    since_ms: int | None = None
    note: str = ""
    """What shows it, for a state that no rule has reported."""

    @property
    def label(self) -> str:
        return "" if self.reading is None else str(LABELS[self.reading])

    @property
    def colour(self) -> str:
        return "" if self.reading is None else COLOURS[self.reading]


@dataclass(frozen=True, slots=True)
class GroupStates:
    """The states of all groups, from each one's worst verdict; `reason` is why they are unknown."""

    worst: Mapping[str, Verdict]
    reason: str = ""

    def of(
        self,
        group: str,
        *,
        has_committed: bool = True,
        lag: Spark | None = None,
        is_abandoned: bool = False,
    ) -> GroupState:
        """Return the state of a group; a group that never committed isn't consuming yet.

        A group whose `lag` grows, or that `is_abandoned` with messages waiting, doesn't count as
        keeping up, even if no rule has fired yet.
        """
        verdict = self.worst.get(group)
        if verdict is not None:
            topic = verdict.name.partition("@")[2]
            return GroupState(OF_RULE[verdict.rule], "", topic, verdict.since_ms)
        if is_abandoned:
            return GroupState(Reading.STOPPED, note=_("no consumers"))
        if self.reason:
            return GroupState(None, self.reason)
        if not has_committed:
            return GroupState(None, _("The group hasn't committed an offset yet."))
        if grows(lag):
            return GroupState(Reading.GROWING, note=_("not yet long enough for a rule"))
        return GroupState(Reading.FINE)

    def rank(self, group: str, lag: Spark | None = None) -> int:
        """Return a group's sort key, worst first."""
        verdict = self.worst.get(group)
        if verdict is not None:
            return RANK[OF_RULE[verdict.rule]]
        return RANK[Reading.GROWING if grows(lag) else Reading.FINE]


def grows(lag: Spark | None) -> bool:
    """Whether the lag rose in each of the last minutes."""
    # The current minute may be unknown.
    values = [] if lag is None else list(lag.values)[-GROWING_POINTS - 1 :]
    known = [value for value in values if value is not None][-GROWING_POINTS:]
    if len(known) < GROWING_POINTS or known[-1] - known[0] < GROWN_MIN:
        return False
    return all(later > earlier for earlier, later in pairwise(known))


def group_states(now_ms: int) -> GroupStates:
    """Return the groups' states from the verdicts; unknown if the rules haven't run recently."""
    try:
        verdicts = verdicts_of(history_store())
    except HistoryError as error:
        logger.warning("verdicts unreadable error=%s", error)
        return GroupStates({}, _("The history can't be read."))
    if now_ms - verdicts.at_ms >= HELD_MS:
        return GroupStates({}, _("The rules haven't run recently."))
    worst: dict[str, Verdict] = {}
    for verdict in verdicts.verdicts:
        if verdict.kind not in {GROUP, PROGRESS} or verdict.rule not in OF_RULE:
            continue
        group = verdict.name.partition("@")[0]
        before = worst.get(group)
        if before is None or RANK[OF_RULE[verdict.rule]] < RANK[OF_RULE[before.rule]]:
            worst[group] = verdict
    return GroupStates(worst)
