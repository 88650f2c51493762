"""Rights: which actions a person may perform, on which topics and groups.

`Guarded` broker clients (console/gateway/guarding.py) check `rights_now` on every call, whichever
page, socket or program made it. Views check first, so that a page doesn't start work that would be
refused. The console's own work (replays, schedules, the collector) runs without rights and isn't
checked.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from django.core.exceptions import PermissionDenied

from console.accounts.actions import ABOUT_GROUPS, ABOUT_NOTHING, Action, group_of
from console.accounts.roles import BASE_ACTIONS, Role, acting_role
from console.accounts.scopes import has, lacking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from django.contrib.auth.models import AnonymousUser, User
    from django.http import HttpRequest

EVERYTHING = "*"


@dataclass(frozen=True, slots=True)
class Patterns:
    """Patterns for names of topics and groups: `*` matches any text, `?` one character."""

    topics: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    def __or__(self, other: Patterns) -> Patterns:
        return Patterns(self.topics | other.topics, self.groups | other.groups)


ALL = Patterns(frozenset({EVERYTHING}), frozenset({EVERYTHING}))


class NotAllowedError(PermissionDenied):
    """The person lacks a role, or an action on a name, that the request needs."""

    def __init__(self, role: Role, action: Action | None = None, name: str = "") -> None:
        super().__init__(f"{action.value} {name}".strip() if action else role.value)
        self.role = role
        self.action = action
        self.name = name


class ScopeMissingError(PermissionDenied):
    """The token lacks a scope for an action that its owner is allowed."""

    def __init__(self, scope: str) -> None:
        super().__init__(scope)
        self.scope = scope


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of a person or of one of their tokens.

    Attributes:
        is_all: whether this is an administrator, who can do everything.
        scopes: the scopes that limit a token; None for the person.
    """

    is_all: bool = False
    given: Mapping[Action, Patterns] = field(default_factory=dict)
    scopes: frozenset[str] | None = None

    @property
    def of_owner(self) -> Rights:
        """The owner's rights, without the token's limits."""
        return self if self.scopes is None else replace(self, scopes=None)

    def may(self, action: Action, name: str) -> bool:
        """Return whether an action is allowed on the topic or group with this name.

        Retry and dead-letter topics belong to their group, whatever the action.
        """
        return self._owner_may(action, name) and not self.lacking(action, name)

    def lacking(self, action: Action, name: str | None = None) -> str:
        """Return the scope that a token lacks for an action, or ""."""
        return "" if self.scopes is None else lacking(self.scopes, action, name)

    def _owner_may(self, action: Action, name: str) -> bool:
        patterns = self.given.get(action)
        if self.is_all or patterns is None:
            return self.is_all
        if action in ABOUT_NOTHING:
            return True
        group = name if action in ABOUT_GROUPS else group_of(name)
        if group is None:
            return fits(patterns.topics, name)
        return fits(patterns.groups, group)

    def may_somewhere(self, action: Action) -> bool:
        """Return whether an action is allowed on some topic or group."""
        return (self.is_all or action in self.given) and not self.lacking(action)

    def may_everywhere(self, action: Action) -> bool:
        """Return whether an action is allowed on every topic or group."""
        patterns = self.given.get(action, Patterns())
        of_all = (EVERYTHING in patterns.topics and EVERYTHING in patterns.groups) or self.is_all
        return of_all and not self.lacking(action, EVERYTHING)

    def administers(self, scope: str) -> bool:
        """Return whether this is an administrator, and the token, if any, has the scope."""
        return self.is_all and (self.scopes is None or has(self.scopes, scope))

    def require_administrator(self, scope: str) -> None:
        """Refuse everyone else, and administrators' tokens without the scope.

        Raises:
            NotAllowedError: the person isn't an administrator.
            ScopeMissingError: the token lacks the scope.
        """
        if not self.is_all:
            raise NotAllowedError(Role.ADMINISTRATOR)
        if not self.administers(scope):
            raise ScopeMissingError(scope)

    def require(self, action: Action, name: str) -> None:
        """Check that an action is allowed on a name.

        Raises:
            NotAllowedError: the person isn't allowed the action.
            ScopeMissingError: the person is, but the token lacks the scope.
        """
        if not self.may(action, name):
            raise self.refusal(action, name)

    def require_somewhere(self, action: Action) -> None:
        """Check that an action is allowed on some name.

        Raises:
            NotAllowedError: the person isn't allowed the action anywhere.
            ScopeMissingError: the person is, but the token lacks the scope.
        """
        if not self.may_somewhere(action):
            raise self.refusal(action)

    def refusal(self, action: Action, name: str = "") -> PermissionDenied:
        """Return the error for an action: a missing scope, or the lowest built-in role that allows
        it.
        """
        owner = self.of_owner
        if owner.may(action, name) if name else owner.may_somewhere(action):
            return ScopeMissingError(self.lacking(action, name or None))
        return NotAllowedError(
            next((role for role in Role if action in BASE_ACTIONS[role]), Role.ADMINISTRATOR),
            action,
            name,
        )


NOTHING = Rights()
OBSERVER_RIGHTS = Rights(is_all=True)
"""For broker reads on a person's behalf whose results show only locations and times.

Unlike the console's own work, which has no rights object, these reads return masked messages.
"""


def fits(patterns: frozenset[str], name: str) -> bool:
    return EVERYTHING in patterns or any(expression(each).fullmatch(name) for each in patterns)


@lru_cache(maxsize=4_096)
def expression(pattern: str) -> re.Pattern[str]:
    wild = {"*": ".*", "?": "."}
    return re.compile("".join(wild.get(each) or re.escape(each) for each in pattern), re.DOTALL)


def rights_of(account: User | AnonymousUser) -> Rights:
    """Return an account's current rights, from its role and its custom roles."""
    if not account.is_authenticated or not account.is_active:
        return NOTHING
    role = acting_role(account)
    if role is Role.ADMINISTRATOR:
        return Rights(is_all=True)
    given = dict.fromkeys(BASE_ACTIONS[role], ALL)
    for custom in account.custom_roles.all():
        patterns = Patterns(frozenset(custom.topics), frozenset(custom.groups))
        for each in custom.allowed:
            given[each] = given.get(each, Patterns()) | patterns
    return Rights(given=given)


def rights_on(request: HttpRequest) -> Rights:
    """Return the rights of a request's user, read once per request.

    A request with a token has its scopes as `token_scopes`.
    """
    scopes: frozenset[str] | None = getattr(request, "token_scopes", None)
    whose = (request.user.pk, scopes)
    kept: tuple[object, Rights] | None = getattr(request, "kept_rights", None)
    if kept is None or kept[0] != whose:
        kept = (whose, replace(rights_of(request.user), scopes=scopes))
        request.kept_rights = kept  # type: ignore[attr-defined]  # Django's way
    return kept[1]


acting: ContextVar[Callable[[], Rights] | None] = ContextVar("acting", default=None)


def rights_now() -> Rights | None:
    """Return the rights of the person this code runs for, or None if it runs for the console."""
    asked = acting.get()
    return None if asked is None else asked()


@contextmanager
def acts_for(asked: Callable[[], Rights] | None) -> Iterator[None]:
    """Run the block with a person's rights, or as the console if there is no person."""
    token = acting.set(asked)
    try:
        yield
    finally:
        acting.reset(token)
