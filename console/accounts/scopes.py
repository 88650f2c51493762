"""Scopes limit a token to reading or changing some areas, within its owner's rights.

Each operation of the API names the scopes it requires. Scopes also limit the rights that a token
acts with (`console.accounts.rights`), so that an undo, an import of topics or a schedule can't
bypass the scope of another area.
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
    "brokers": _("Brokers, overview and issues"),
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

EXPLICIT_AREAS = frozenset({"people"})
"""Areas that `*:write` doesn't include: accounts created with a token outlive the token."""

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
"""The scope of each action; actions without a topic or group need only the operation's scope."""


def scope_of(area: str, *, writes: bool) -> str:
    return f"{area}:{WRITE if writes else READ}"


def has(scopes: Collection[str], scope: str) -> bool:
    """Return whether a token's scopes include a scope."""
    area, _colon, verb = scope.partition(":")
    return covers(scopes, area, writes=verb == WRITE)


def lacking(scopes: Collection[str], action: Action, name: str | None = None) -> str:
    """Return the scope that is missing for an action on a topic or group, or "".

    Without a name, return a scope only if the action is allowed on no name at all.
    """
    needed = OF_ACTIONS.get(action, "")
    if not needed or has(scopes, needed):
        return ""
    # A group's retry and dead-letter topics are also in the dead-letters area.
    is_of_group = name is None or group_of(name) is not None
    if needed == MESSAGES and is_of_group and has(scopes, DEAD_LETTERS):
        return ""
    return needed


def every_scope() -> list[str]:
    """Return all scopes: the two for everything, then two for each area."""
    return [f"{area}:{verb}" for area in (EVERYTHING, *AREAS) for verb in (READ, WRITE)]


def covers(scopes: Collection[str], area: str, *, writes: bool) -> bool:
    """Return whether scopes allow reading or changing an area; write includes read."""
    verbs = (WRITE,) if writes else (READ, WRITE)
    areas = (area,) if writes and area in EXPLICIT_AREAS else (EVERYTHING, area)
    return any(f"{each}:{verb}" in scopes for each in areas for verb in verbs)
