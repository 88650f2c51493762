"""Scopes: what a token may do, by area, to look or to change; its owner's role bounds it anyway.

An operation of the API names the scopes it takes. Beside that, a token's scopes narrow the rights
it acts with (`console.accounts.rights`), so that no operation reaches by a side way what another
area guards: an undo, a file of topics or a schedule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import gettext_lazy as _

from console.accounts.actions import Action, group_of

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
    "people": _("People, roles and broker accounts"),
}

BY_NAME_ALONE = frozenset({"people"})
"""Areas that `*:write` doesn't let change: accounts made with a token outlive it."""

MESSAGES, DEAD_LETTERS = "messages:read", "dead-letters:read"
OF_ACTIONS: dict[Action, str] = {
    Action.SEE: MESSAGES,
    Action.READ: MESSAGES,
    Action.EXPORT: MESSAGES,
    Action.UNMASK: "messages:write",
    Action.SEND: "messages:write",
    Action.TOPIC: "topics:write",
    Action.GROUP: "groups:write",
    Action.OFFSET: "offsets:write",
    Action.REPLAY: "dead-letters:write",
    Action.MEMBER: "groups:read",
    Action.DISCONNECT: "groups:write",
}
"""The scope that each action takes; what is about no topic or group takes its operation's alone."""


def scope_of(area: str, *, writes: bool) -> str:
    return f"{area}:{WRITE if writes else READ}"


def has(scopes: Collection[str], scope: str) -> bool:
    """Whether scopes cover a single one."""
    area, _colon, verb = scope.partition(":")
    return covers(scopes, area, writes=verb == WRITE)


def lacking(scopes: Collection[str], action: Action, name: str | None = None) -> str:
    """Return the scope that an action on a topic or group lacks, "" where it lacks none.

    Without a name it is asked whether there may be one.
    """
    needed = OF_ACTIONS.get(action, "")
    if not needed or has(scopes, needed):
        return ""
    # A group's retries and dead letters are messages of their own area, too.
    is_of_group = name is None or group_of(name) is not None
    if needed == MESSAGES and is_of_group and has(scopes, DEAD_LETTERS):
        return ""
    return needed


def every_scope() -> list[str]:
    """Return all scopes: both of everything, then both of each area."""
    return [f"{area}:{verb}" for area in (EVERYTHING, *AREAS) for verb in (READ, WRITE)]


def covers(scopes: Collection[str], area: str, *, writes: bool) -> bool:
    """Whether scopes let a program look at an area or change it; who may change it may look."""
    verbs = (WRITE,) if writes else (READ, WRITE)
    areas = (area,) if writes and area in BY_NAME_ALONE else (EVERYTHING, area)
    return any(f"{each}:{verb}" in scopes for each in areas for verb in verbs)
