"""Changes of delay offsets: the delayed messages they skip or deliver again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import gettext as _, ngettext

from broker_core.message.names import RMQ_SYS_SCHEDULE_TOPIC
from console.broker.files.costing import Costs, PlanRefusedError, status_of
from console.gateway.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.broker.configs.plan import Plan, State, Values
    from console.gateway.answers import QueueStatus

OFFSET = "offset"


def advanced(
    seen: Mapping[str, Values | None], now: Mapping[str, Values | None], wanted: State
) -> dict[str, Values | None]:
    """Return the seen state, with levels that have only advanced since then updated to now.

    Levels advance all the time while they deliver. That isn't a conflict as long as the plan still
    moves them in the same direction.
    """
    found = dict(seen)
    for level, values in wanted.items():
        target, before, after = (
            None if each is None else int(each[OFFSET])
            for each in (values, seen.get(level), now.get(level))
        )
        if target is None or after is None:
            continue
        before = before or 0
        if before <= after and (target < before or after < target):
            found[level] = now[level]
    return found


def delay_costs(broker_name: str, plan: Plan) -> Costs:
    """Return how many delayed messages are lost, and how many are delivered again.

    Raises:
        PlanRefusedError: an offset is outside its level's queue, or would be removed.
    """
    try:
        ends = status_of(RMQ_SYS_SCHEDULE_TOPIC, broker_name)
    except NotFoundError:
        ends = {}
    refused, sentences = [], []
    for level, wanted in plan.wanted.items():
        now = plan.now.get(level)
        if wanted == now:
            continue
        if wanted is None:
            refused.append(
                _("Level %s: its offset can't be deleted. Use 0 for the beginning.") % level
            )
            continue
        low, high = ends_of(ends.get(int(level) - 1))
        offset, old = int(wanted[OFFSET]), 0 if now is None else int(now[OFFSET])
        if not low <= offset <= high:
            text = _("Level %(level)s has offsets from %(low)d to %(high)d.")
            refused.append(text % {"level": level, "low": low, "high": high})
            continue
        old = min(max(old, low), high)
        if offset != old:
            sentences.append(move_effect(level, offset - old))
    if refused:
        raise PlanRefusedError(refused)
    return Costs(tuple(sentences), is_final=False)


def ends_of(row: QueueStatus | None) -> tuple[int, int]:
    return (0, 0) if row is None else (row.min_offset, row.max_offset)


def move_effect(level: str, distance: int) -> str:
    if distance > 0:
        text = ngettext(
            "Level %(level)s: %(count)d delayed message will be skipped and never delivered.",
            "Level %(level)s: %(count)d delayed messages will be skipped and never delivered.",
            distance,
        )
    else:
        text = ngettext(
            "Level %(level)s: %(count)d delayed message will be delivered again, as a new message.",
            "Level %(level)s: %(count)d delayed messages will be delivered again, as new messages.",
            -distance,
        )
    return text % {"level": level, "count": abs(distance)}
