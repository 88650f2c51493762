"""The page of SQL access rights: who can query which topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.http import Http404
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _

from console.accounts.permissions import administrators_action, administrators_form
from console.data.sql.forms import RightForm
from console.data.sql.rights import Topics, every_right, grant, granted_to, take
from console.people.audit.record import change

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.http import HttpRequest, HttpResponse

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


@administrators_form
def rights(request: HttpRequest) -> HttpResponse:
    """Show who can query the lake, and grant access."""
    is_post = request.method == "POST"
    form = RightForm(
        request.POST if is_post else None,
        grantees=possible_grantees(),
        initial={"scope": "some", "topics": ""},
    )
    if is_post and form.is_valid():
        messages.success(request, grant_right(request, form))
        return redirect("sql:rights")
    rows = [
        {
            "key": key_of(grantee),
            "name": str(grantee),
            "is_group": isinstance(grantee, Group),
            "topics": topics,
        }
        for grantee, topics in every_right()
    ]
    context = {"form": form, "rows": rows}
    return render(request, "sql/rights.html", context, status=422 if is_post else 200)


@administrators_action
def revoke(request: HttpRequest) -> HttpResponse:
    """Revoke a person's or group's permission."""
    messages.success(request, revoke_right(request, get_grantee(request.POST.get("grantee", ""))))
    return redirect("sql:rights")


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
