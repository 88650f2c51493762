"""Rights: the lake topics that a person may query.

The permission `sql.query_lake` lets a person or group run queries, on all topics or on those of an
accompanying QueryRight. Several grants add up.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.http import Http404, HttpRequest
from django.utils.translation import gettext as _

from console.data.sql.models import QueryRight
from console.people.audit.record import change

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from django.contrib.auth.models import User
    from django.db.models import QuerySet

    from console.data.sql.forms import RightForm

TOPICS_MAX = 50
PATTERN = re.compile(r"[%|\w*-]{1,127}", re.ASCII)

Topics = tuple[str, ...] | None
"""Topic names, with `*` for any characters; None is all topics."""


class RightError(Exception):
    """A right is invalid; the text is a sentence."""


def topics_of(user: User) -> Topics:
    """Return the topics that a person may query; empty without the permission."""
    if user.is_staff or user.is_superuser:
        return None
    if not user.is_active:
        return ()
    given: list[QueryRight | None] = []
    if user.user_permissions.filter(pk=permission().pk).exists():
        given.append(QueryRight.objects.filter(user=user).first())
    groups = groups_with_access().filter(user=user)
    given.extend(QueryRight.objects.filter(group=group).first() for group in groups)
    found: set[str] = set()
    for right in given:
        if right is None:
            return None
        found.update(right.topics)
    return tuple(sorted(found))


def covers(topics: Topics, others: Topics) -> bool:
    """Whether a right to `topics` covers rows that were read from other topics, by pattern."""
    return topics is None or (others is not None and set(others) <= set(topics))


def permission() -> Permission:
    return Permission.objects.get(codename="query_lake", content_type__app_label="sql")


def people_with_access() -> QuerySet[User]:
    """Return the people who were granted the permission directly."""
    return get_user_model().objects.filter(user_permissions=permission()).order_by("username")


def groups_with_access() -> QuerySet[Group]:
    return Group.objects.filter(permissions=permission()).order_by("name")


def every_right() -> Iterator[tuple[User | Group, Topics]]:
    """Yield each person and group with the permission, and its topics."""
    for person in people_with_access():
        yield person, granted_to(person)
    for group in groups_with_access():
        yield group, granted_to(group)


def granted_to(grantee: User | Group) -> Topics:
    """Return the topics granted directly to a person or group."""
    right = QueryRight.objects.filter(**_key(grantee)).first()
    return None if right is None else tuple(right.topics)


def grant(grantee: User | Group, topics: Topics) -> None:
    """Grant the permission, replacing an earlier grant.

    Raises:
        RightError: a topic is invalid, or there are too many.
    """
    if topics is None:
        QueryRight.objects.filter(**_key(grantee)).delete()
    else:
        kept = checked(topics)
        # Store the limit before the permission it restricts.
        QueryRight.objects.update_or_create(**_key(grantee), defaults={"topics": kept})
    _permissions_of(grantee).add(permission())


def take(grantee: User | Group) -> None:
    """Revoke the permission."""
    _permissions_of(grantee).remove(permission())
    QueryRight.objects.filter(**_key(grantee)).delete()


def checked(topics: Iterable[str]) -> list[str]:
    """Return the patterns, sorted and without duplicates.

    Raises:
        RightError: a pattern is invalid, or there are no patterns or too many.
    """
    kept = sorted(set(topics))
    if not kept:
        raise RightError(_("Enter at least one topic."))
    if len(kept) > TOPICS_MAX:
        raise RightError(
            _("You entered %(count)d topics; the limit is %(max)d. Use * to match several.")
            % {"count": len(kept), "max": TOPICS_MAX}
        )
    for each in kept:
        if not PATTERN.fullmatch(each):
            raise RightError(
                _(
                    "“%(text)s” isn't a valid topic name. Use letters, digits, %%, -, _ and |, "
                    "and * for any characters."
                )
                % {"text": each[:130]}
            )
    return kept


def _key(grantee: User | Group) -> dict[str, Any]:
    return {"group" if isinstance(grantee, Group) else "user": grantee}


def _permissions_of(grantee: User | Group) -> Any:
    return grantee.permissions if isinstance(grantee, Group) else grantee.user_permissions


LISTED_MAX = 500


def key_of(grantee: User | Group) -> str:
    return f"{'group' if isinstance(grantee, Group) else 'person'}:{grantee.pk}"


def possible_grantees() -> dict[str, str]:
    """Return the people and groups that can be granted the permission; administrators always have
    it.
    """
    people = get_user_model().objects.filter(is_staff=False, is_active=True, is_superuser=False)
    return {
        **{key_of(each): each.get_username() for each in people.order_by("username")[:LISTED_MAX]},
        **{
            key_of(each): _("group %(name)s") % {"name": each.name}
            for each in Group.objects.order_by("name")[:LISTED_MAX]
        },
    }


def get_grantee(key: str) -> User | Group:
    kind, _colon, number = key.partition(":")
    model: Any = {"group": Group, "person": get_user_model()}.get(kind)
    grantee: User | Group | None = None
    if model is not None and number.isascii() and number.isdecimal() and len(number) < 19:
        grantee = model.objects.filter(pk=int(number)).first()
    if grantee is None:
        raise Http404(_("This person or group no longer exists."))
    return grantee


def audited(topics: Topics) -> dict[str, Any]:
    return {"topics": "*" if topics is None else list(topics)}


def grant_right(request: HttpRequest, form: RightForm) -> str:
    """Grant the access that a form specifies; return a sentence about it."""
    grantee, wanted = get_grantee(form.cleaned_data["grantee"]), form.cleaned_data["wanted"]
    given = {key_of(one): topics for one, topics in every_right()}
    before = audited(given[key_of(grantee)]) if key_of(grantee) in given else None
    with change(request, "account.sql", str(grantee), before=before, after=audited(wanted)):
        grant(grantee, wanted)
    return _("%(name)s can now query the lake.") % {"name": grantee}


def revoke_right(request: HttpRequest, grantee: User | Group) -> str:
    """Revoke access to the lake; return a sentence about it."""
    with change(
        request, "account.sql", str(grantee), before=audited(granted_to(grantee)), after=None
    ):
        take(grantee)
    return _("%(name)s can no longer query the lake.") % {"name": grantee}
