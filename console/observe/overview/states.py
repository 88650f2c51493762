"""Health states, and findings: the reasons for them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _, ngettext

from console.observe.history.metrics import BROKER, GROUP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from console.gateway.answers import ConsumeProgress, GroupConnections

GROUPS_NAMED_MAX = 3
NO_CONSUMER_RULE = "no-consumer"
"""The rule that reports, with evidence, what `no_consumers_finding` says at once."""


class State(StrEnum):
    """Health, best first."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """A current reading that isn't good; `kind` is its subject's kind in the history."""

    state: State
    text: str
    kind: str = BROKER


def has_no_consumers(progress: ConsumeProgress, connections: GroupConnections) -> bool:
    """Whether a group's messages wait and no consumer is connected."""
    return progress.lag > 0 and not connections.is_online


def no_consumers_finding(groups: Sequence[str]) -> Finding:
    """Return the finding about groups for which `has_no_consumers` holds."""
    more = len(groups) - GROUPS_NAMED_MAX
    tail = _(" and %(count)d more") % {"count": more} if more > 0 else ""
    text = ngettext(
        "%(names)s is lagging and has no consumers.",
        "%(names)s%(tail)s are lagging and have no consumers.",
        len(groups),
    ) % {"names": ", ".join(groups[:GROUPS_NAMED_MAX]), "tail": tail}
    return Finding(State.WARN, text, GROUP)
