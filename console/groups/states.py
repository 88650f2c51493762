"""How a group reads: keeps up, falls behind, has stopped, stalls or reads again.

These are Burrow's states, by the verdicts' rules instead of a window of commits.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _, gettext_lazy

from console.history.access import history_store
from console.history.database import HistoryError
from console.history.metrics import GROUP, PROGRESS
from console.verdicts.judge import HELD_MS, verdicts_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.history.reading import Spark
    from console.verdicts.judge import Verdict

logger = logging.getLogger(__name__)


class Reading(StrEnum):
    """How a group reads, from worst to best."""

    STOPPED = "stopped"
    STALLED = "stalled"
    BEHIND = "behind"
    REWOUND = "rewound"
    GROWING = "growing"
    FINE = "fine"


GROWING_POINTS = 4
"""Minutes; the rules look at more, and speak later."""
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
    Reading.GROWING: gettext_lazy("lag grows"),
    Reading.FINE: gettext_lazy("keeps up"),
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

    def of(self, group: str, *, has_committed: bool = True, lag: Spark | None = None) -> GroupState:
        """Return the state of a group, which reads nothing yet where it never committed.

        While its `lag` grows, and no rule has seen enough to speak, it is not said to keep up.
        """
        verdict = self.worst.get(group)
        if verdict is not None:
            topic = verdict.name.partition("@")[2]
            return GroupState(OF_RULE[verdict.rule], "", topic, verdict.since_ms)
        if self.reason:
            return GroupState(None, self.reason)
        if not has_committed:
            return GroupState(None, _("The group has no consumer offset yet."))
        return GroupState(Reading.GROWING if grows(lag) else Reading.FINE)

    def rank(self, group: str, lag: Spark | None = None) -> int:
        """Return the place of a group in the order from worst to best."""
        verdict = self.worst.get(group)
        if verdict is not None:
            return RANK[OF_RULE[verdict.rule]]
        return RANK[Reading.GROWING if grows(lag) else Reading.FINE]


def grows(lag: Spark | None) -> bool:
    """Whether a lag was higher in each of the last minutes than in the one before."""
    # The minute that is not over may not be known yet.
    values = [] if lag is None else list(lag.values)[-GROWING_POINTS - 1 :]
    known = [value for value in values if value is not None][-GROWING_POINTS:]
    if len(known) < GROWING_POINTS or known[-1] - known[0] < GROWN_MIN:
        return False
    return all(later > earlier for earlier, later in pairwise(known))


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
