"""The page of rights: who may ask the lake, and about which topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.http import Http404
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _

from console.accounts.permissions import administrators_action, administrators_form
from console.audit.record import change
from console.sql.forms import RightForm
from console.sql.rights import Topics, every_right, give, given_to, take

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.http import HttpRequest, HttpResponse

LISTED_MAX = 500


def key_of(who: User | Group) -> str:
    return f"{'group' if isinstance(who, Group) else 'person'}:{who.pk}"


def whom() -> dict[str, str]:
    """Return who can be given the permission: administrators have it anyway."""
    people = get_user_model().objects.filter(is_staff=False, is_active=True, is_superuser=False)
    return {
        **{key_of(each): each.get_username() for each in people.order_by("username")[:LISTED_MAX]},
        **{
            key_of(each): _("group %(name)s") % {"name": each.name}
            for each in Group.objects.order_by("name")[:LISTED_MAX]
        },
    }


def found(key: str) -> User | Group:
    kind, _colon, number = key.partition(":")
    model: Any = {"group": Group, "person": get_user_model()}.get(kind)
    who: User | Group | None = None
    if model is not None and number.isascii() and number.isdecimal() and len(number) < 19:
        who = model.objects.filter(pk=int(number)).first()
    if who is None:
        raise Http404(_("There is no such person or group any more."))
    return who


def audited(topics: Topics) -> dict[str, Any]:
    return {"topics": "*" if topics is None else list(topics)}


@administrators_form
def rights(request: HttpRequest) -> HttpResponse:
    """Show who may ask the lake, and let somebody ask."""
    is_post = request.method == "POST"
    form = RightForm(
        request.POST if is_post else None, whom=whom(), initial={"scope": "some", "topics": ""}
    )
    if is_post and form.is_valid():
        messages.success(request, given_by(request, form))
        return redirect("sql:rights")
    rows = [
        {"key": key_of(who), "name": str(who), "is_group": isinstance(who, Group), "topics": topics}
        for who, topics in every_right()
    ]
    context = {"form": form, "rows": rows}
    return render(request, "sql/rights.html", context, status=422 if is_post else 200)


@administrators_action
def take_away(request: HttpRequest) -> HttpResponse:
    """Take the permission from a person or a group."""
    messages.success(request, taken(request, found(request.POST.get("who", ""))))
    return redirect("sql:rights")


def given_by(request: HttpRequest, form: RightForm) -> str:
    """Let whom a form names ask the lake; return what was done."""
    who, wanted = found(form.cleaned_data["who"]), form.cleaned_data["wanted"]
    given = {key_of(one): topics for one, topics in every_right()}
    before = audited(given[key_of(who)]) if key_of(who) in given else None
    with change(request, "account.sql", str(who), before=before, after=audited(wanted)):
        give(who, wanted)
    return _("%(name)s may ask the lake.") % {"name": who}


def taken(request: HttpRequest, who: User | Group) -> str:
    """Let somebody ask the lake no more; return what was done."""
    with change(request, "account.sql", str(who), before=audited(given_to(who)), after=None):
        take(who)
    return _("%(name)s may not ask the lake any more.") % {"name": who}
