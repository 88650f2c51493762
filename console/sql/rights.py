"""Rights: which topics of the lake somebody may ask about.

The permission `sql.query_lake` lets a person or a group ask. It is for all topics, or for those of
a QueryRight beside it. Who has it more than once may ask about all of them together.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.utils.translation import gettext as _

from console.sql.models import QueryRight

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from django.contrib.auth.models import AnonymousUser, User
    from django.db.models import QuerySet

PERMISSION = "sql.query_lake"
TOPICS_MAX = 50
PATTERN = re.compile(r"[%|\w*-]{1,127}", re.ASCII)

Topics = tuple[str, ...] | None
"""Names of topics, with `*` for any characters; None is all of them."""


class RightError(Exception):
    """A right cannot be as it was given; the text is a sentence."""


def may_query(user: User | AnonymousUser) -> bool:
    return user.is_authenticated and (user.is_staff or user.has_perm(PERMISSION))


def topics_of(user: User) -> Topics:
    """Return the topics that a person may ask about; none without the permission."""
    if user.is_staff or user.is_superuser:
        return None
    if not user.is_active:
        return ()
    given: list[QueryRight | None] = []
    if user.user_permissions.filter(pk=permission().pk).exists():
        given.append(QueryRight.objects.filter(user=user).first())
    groups = groups_that_may().filter(user=user)
    given.extend(QueryRight.objects.filter(group=group).first() for group in groups)
    found: set[str] = set()
    for right in given:
        if right is None:
            return None
        found.update(right.topics)
    return tuple(sorted(found))


def covers(topics: Topics, others: Topics) -> bool:
    """Whether who may ask about topics may see what was read of others, by their patterns."""
    return topics is None or (others is not None and set(others) <= set(topics))


def permission() -> Permission:
    return Permission.objects.get(codename="query_lake", content_type__app_label="sql")


def people_that_may() -> QuerySet[User]:
    """Return those who were given the permission themselves."""
    return get_user_model().objects.filter(user_permissions=permission()).order_by("username")


def groups_that_may() -> QuerySet[Group]:
    return Group.objects.filter(permissions=permission()).order_by("name")


def every_right() -> Iterator[tuple[User | Group, Topics]]:
    """Yield who was given the permission, with its topics."""
    for person in people_that_may():
        yield person, given_to(person)
    for group in groups_that_may():
        yield group, given_to(group)


def given_to(who: User | Group) -> Topics:
    """Return the topics of the permission that somebody was given."""
    right = QueryRight.objects.filter(**_key(who)).first()
    return None if right is None else tuple(right.topics)


def give(who: User | Group, topics: Topics) -> None:
    """Give the permission, in the place of what was given before.

    Raises:
        RightError: a topic is none, or they are too many.
    """
    if topics is None:
        QueryRight.objects.filter(**_key(who)).delete()
    else:
        kept = checked(topics)
        # First the limit, then what it limits.
        QueryRight.objects.update_or_create(**_key(who), defaults={"topics": kept})
    _permissions_of(who).add(permission())


def take(who: User | Group) -> None:
    """Take the permission away."""
    _permissions_of(who).remove(permission())
    QueryRight.objects.filter(**_key(who)).delete()


def checked(topics: Iterable[str]) -> list[str]:
    """Return patterns in order, each once.

    Raises:
        RightError: one is none, there is none, or there are too many.
    """
    kept = sorted(set(topics))
    if not kept:
        raise RightError(_("Name at least one topic."))
    if len(kept) > TOPICS_MAX:
        raise RightError(
            _("These are %(count)d topics; a right has at most %(max)d. Use * for several.")
            % {"count": len(kept), "max": TOPICS_MAX}
        )
    for each in kept:
        if not PATTERN.fullmatch(each):
            raise RightError(
                _("%(text)s is no topic: letters, digits, %%, -, _ and | make one, * any of them.")
                % {"text": each[:130]}
            )
    return kept


def _key(who: User | Group) -> dict[str, Any]:
    return {"group" if isinstance(who, Group) else "user": who}


def _permissions_of(who: User | Group) -> Any:
    return who.permissions if isinstance(who, Group) else who.user_permissions
