"""Scopes: what a token may do, by area, to look or to change; its owner's role bounds it anyway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from collections.abc import Collection

    from django.utils.functional import Promise

READ, WRITE = "read", "write"
EVERYTHING = "*"

AREAS: dict[str, Promise | str] = {
    "brokers": _("Brokers, the overview, verdicts"),
    "topics": _("Topics"),
    "groups": _("Groups"),
    "offsets": _("Offsets"),
    "messages": _("Messages"),
    "dead-letters": _("Dead letters"),
    "history": _("History"),
    "marks": _("Marks"),
    "alerts": _("Alerts"),
    "reports": _("Reports"),
    "lake": _("Lake and SQL"),
    "audit": _("Audit"),
    "people": _("People"),
}

BY_NAME_ALONE = frozenset({"people"})
"""Areas that `*:write` does not let change: who may make accounts outlives any token."""


def scope_of(area: str, *, writes: bool) -> str:
    return f"{area}:{WRITE if writes else READ}"


def every_scope() -> list[str]:
    """Return all scopes: both of everything, then both of each area."""
    return [f"{area}:{verb}" for area in (EVERYTHING, *AREAS) for verb in (READ, WRITE)]


def covers(scopes: Collection[str], area: str, *, writes: bool) -> bool:
    """Whether scopes let a program look at an area or change it; who may change it may look."""
    verbs = (WRITE,) if writes else (READ, WRITE)
    areas = (area,) if writes and area in BY_NAME_ALONE else (EVERYTHING, area)
    return any(f"{each}:{verb}" in scopes for each in areas for verb in verbs)
