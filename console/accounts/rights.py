"""Rights: which actions somebody may do, on which topics and groups.

`Guarded` ways to brokers (console/gateway/guarding.py) ask `rights_now` at every call, whichever
page, socket or program made it; views ask before, so that a page need not begin what would be
refused. Work of the console itself (replays, schedules, the collector) has nobody's rights and
asks nobody.
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
    """Names of topics and of groups: `*` is any text, `?` one character."""

    topics: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    def __or__(self, other: Patterns) -> Patterns:
        return Patterns(self.topics | other.topics, self.groups | other.groups)


ALL = Patterns(frozenset({EVERYTHING}), frozenset({EVERYTHING}))


class NotAllowedError(PermissionDenied):
    """A request needs a role, or an action on a name, that the person does not have."""

    def __init__(self, role: Role, action: Action | None = None, name: str = "") -> None:
        super().__init__(f"{action.value} {name}".strip() if action else role.value)
        self.role = role
        self.action = action
        self.name = name


class ScopeMissingError(PermissionDenied):
    """A token's owner may do this, and the token may not: it lacks a scope."""

    def __init__(self, scope: str) -> None:
        super().__init__(scope)
        self.scope = scope


@dataclass(frozen=True, slots=True)
class Rights:
    """What one person may do, or a token of theirs.

    Attributes:
        is_all: whether this is an administrator, who may do everything.
        scopes: what a token leaves of all that; None for the person.
    """

    is_all: bool = False
    given: Mapping[Action, Patterns] = field(default_factory=dict)
    scopes: frozenset[str] | None = None

    @property
    def of_owner(self) -> Rights:
        """The same without the bounds of a token."""
        return self if self.scopes is None else replace(self, scopes=None)

    def may(self, action: Action, name: str) -> bool:
        """Whether an action is allowed on a topic or a group of this name.

        Retries and dead letters belong to their group, whatever the action.
        """
        return self._owner_may(action, name) and not self.lacking(action, name)

    def lacking(self, action: Action, name: str | None = None) -> str:
        """Return the scope that a token lacks for an action, "" where it lacks none."""
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
        """Whether there may be a name on which an action is allowed."""
        return (self.is_all or action in self.given) and not self.lacking(action)

    def may_everywhere(self, action: Action) -> bool:
        """Whether an action is allowed on every topic or group."""
        patterns = self.given.get(action, Patterns())
        of_all = (EVERYTHING in patterns.topics and EVERYTHING in patterns.groups) or self.is_all
        return of_all and not self.lacking(action, EVERYTHING)

    def administers(self, scope: str) -> bool:
        """Whether this is an administrator, and a token of theirs has the scope."""
        return self.is_all and (self.scopes is None or has(self.scopes, scope))

    def require_administrator(self, scope: str) -> None:
        """Refuse all others, and tokens of administrators without the scope.

        Raises:
            NotAllowedError: it is somebody else.
            ScopeMissingError: it is a token that lacks the scope.
        """
        if not self.is_all:
            raise NotAllowedError(Role.ADMINISTRATOR)
        if not self.administers(scope):
            raise ScopeMissingError(scope)

    def require(self, action: Action, name: str) -> None:
        """Refuse what is not allowed.

        Raises:
            NotAllowedError: it is not.
            ScopeMissingError: it is, and a token lacks the scope.
        """
        if not self.may(action, name):
            raise self.refusal(action, name)

    def require_somewhere(self, action: Action) -> None:
        """Refuse who may do this nowhere.

        Raises:
            NotAllowedError: nowhere.
            ScopeMissingError: somewhere, and a token lacks the scope.
        """
        if not self.may_somewhere(action):
            raise self.refusal(action)

    def refusal(self, action: Action, name: str = "") -> PermissionDenied:
        """Return why an action is refused: its scope, or the least of our roles that has it."""
        owner = self.of_owner
        if owner.may(action, name) if name else owner.may_somewhere(action):
            return ScopeMissingError(self.lacking(action, name or None))
        return NotAllowedError(
            next((role for role in Role if action in BASE_ACTIONS[role]), Role.ADMINISTRATOR),
            action,
            name,
        )


NOTHING = Rights()
LOOKING_ON = Rights(is_all=True)
"""For what the console looks at on somebody's behalf, of which their page tells places and times.

Unlike the console's own work (nobody's rights) it sees messages masked.
"""


def fits(patterns: frozenset[str], name: str) -> bool:
    return EVERYTHING in patterns or any(expression(each).fullmatch(name) for each in patterns)


@lru_cache(maxsize=4_096)
def expression(pattern: str) -> re.Pattern[str]:
    wild = {"*": ".*", "?": "."}
    return re.compile("".join(wild.get(each) or re.escape(each) for each in pattern), re.DOTALL)


def rights_of(account: User | AnonymousUser) -> Rights:
    """Return what an account may do now: by its role, and by the roles made here."""
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
    """Return the rights of whoever made a request, read once for each.

    A request of a token has its scopes as `token_scopes`.
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
    """Return the rights of the person this code runs for, None where it runs for the console."""
    asked = acting.get()
    return None if asked is None else asked()


@contextmanager
def acts_for(asked: Callable[[], Rights] | None) -> Iterator[None]:
    """Let the block run for somebody; for the console itself where nobody is given."""
    token = acting.set(asked)
    try:
        yield
    finally:
        acting.reset(token)
