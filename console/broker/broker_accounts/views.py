"""Pages of broker accounts: the list, access checks, and changes as plans."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django.core import signing
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _

from console.accounts.permissions import administrators_form, administrators_page
from console.broker.broker_accounts import changing, listed
from console.broker.broker_accounts.changing import (
    LIST,
    danger_of_deletion,
    deletion,
    done_message,
    holders_or_404,
    undoable,
)
from console.broker.broker_accounts.forms import AccountForm, QuestionForm, WhiteForm
from console.broker.configs.plan import Plan, sealed_state, unsealed, unsealed_state
from console.broker.configs.plan_page import PlanPages, PlanSurroundings, PlanWords, show_plan
from console.lib.missing import MissingError
from console.lib.moment import now_ms
from console.people.audit.undo import offer_undo
from console.ui.danger import Danger, ask, confirmation

if TYPE_CHECKING:
    from django import forms
    from django.http import HttpRequest, HttpResponse

    from console.broker.broker_accounts.changing import BrokersAccess

UNPROCESSABLE = 422


@administrators_page
def listing(request: HttpRequest) -> HttpResponse:
    """List the accounts of all brokers and their differences."""
    all_of = changing.ask_brokers()
    context = {
        "found": all_of,
        "rows": listed.rows_of(all_of),
        "white": listed.white_rows(all_of),
        "other_white": listed.other_white(all_of),
        "is_original": any(not all_of.is_described(place) for place in all_of.on),
        "read_at_ms": now_ms(),
    }
    return render(request, "broker_accounts/list.html", context)


@administrators_page
def may(request: HttpRequest) -> HttpResponse:
    """Show each broker's answer to an access check, and the rule that decides."""
    all_of = changing.ask_brokers()
    form = QuestionForm(request.GET if "action" in request.GET else None)
    answers = (
        listed.access_answers(all_of, form.question()) if form.is_bound and form.is_valid() else []
    )
    context = {"form": form, "answers": answers, "keys": all_of.access_keys, "found": all_of}
    status = UNPROCESSABLE if form.is_bound and form.errors else 200
    return render(request, "broker_accounts/may.html", context, status=status)


@administrators_form
def create(request: HttpRequest) -> HttpResponse:
    """Create an account on every broker (form, plan, apply), then show its secret once."""
    all_of = changing.ask_brokers()
    if "token" in request.POST:
        return apply(request, all_of, changing.ACCOUNT)
    form = AccountForm(request.POST or None)
    if form.is_bound and "back" not in request.POST and form.is_valid():
        wanted = form.wanted()
        if all_of.holders(wanted.access_key):
            form.add_error(
                "access_key", _("An account with this key already exists. Edit it instead.")
            )
        elif not all_of.on:
            form.add_error(None, _("Access control isn't turned on at any broker that responded."))
        else:
            plan = changing.plan_of_account(all_of, wanted, is_new=True)
            return show_account_plan(request, plan, entries=entries_of(form))
    return render(request, "broker_accounts/account.html", {"form": form})


@administrators_form
def edit(request: HttpRequest, access_key: str) -> HttpResponse:
    """Change an account's permissions on each broker that has it: form, plan, apply."""
    all_of = changing.ask_brokers()
    if "token" in request.POST:
        return apply(request, all_of, changing.ACCOUNT)
    held = holders_or_404(all_of, access_key)
    form = AccountForm(request.POST or None, account=next(iter(held.values())))
    state = changing.state_of(all_of, access_key, held)
    if form.is_bound and "back" not in request.POST and form.is_valid():
        seen = seen_in(form, changing.ACCOUNT)
        plan = changing.plan_of_account(all_of, form.wanted(), is_new=False, seen=seen)
        return show_account_plan(request, plan, entries=entries_of(form))
    originals = [place for place in held if not all_of.is_described(place)]
    context = {
        "form": form,
        "account": form.account,
        "seen": form.data.get("seen") or sealed_state(state, changing.ACCOUNT),
        "broker_places": list(held),
        "originals": originals,
        "differs": len({repr(each) for each in state.values()}) > 1,
    }
    return render(request, "broker_accounts/account.html", context)


@administrators_form
def white(request: HttpRequest) -> HttpResponse:
    """Change the whitelisted addresses on every broker."""
    all_of = changing.ask_brokers()
    if "token" in request.POST:
        return apply(request, all_of, changing.WHITE)
    if not all_of.on:
        raise MissingError(_("Access control isn't turned on at any broker that responded."))
    form = WhiteForm(request.POST or None)
    if form.is_bound and "back" not in request.POST and form.is_valid():
        seen = seen_in(form, changing.WHITE)
        plan = changing.plan_of_white(all_of, form.cleaned_data["addresses"], seen)
        return show_account_plan(request, plan, entries=entries_of(form))
    _node, first = next(iter(all_of.on.values()))
    form.initial["addresses"] = "\n".join(first.white_addresses)
    seen = form.data.get("seen") or sealed_state(changing.white_state(all_of), changing.WHITE)
    context = {"form": form, "seen": seen, "broker_places": list(all_of.on)}
    return render(request, "broker_accounts/white.html", context)


@administrators_form
def renew(request: HttpRequest, access_key: str) -> HttpResponse:
    """Set a new secret on every broker after confirmation, and show it once."""
    all_of = changing.ask_brokers()
    holders_or_404(all_of, access_key)
    plan = changing.plan_of_secret(all_of, access_key)
    danger = Danger(
        title=_("Create a new secret for %(key)s?") % {"key": access_key},
        text=_(
            "Clients that use the old secret are rejected until they get the new one. Brokers "
            "without this account get it too, with the same secret."
        ),
        undo=_("This can't be undone. The old secret isn't stored anywhere."),
        action=_("Create new secret"),
        keep=_("Keep old secret"),
        address=reverse("broker_accounts:renew", args=[access_key]),
        back=reverse(LIST),
        name=access_key,
        icon="key-round",
        refusal=changing.objection_to(plan),
    )
    return preview_or_apply(request, all_of, plan, danger)


@administrators_form
def delete(request: HttpRequest, access_key: str) -> HttpResponse:
    """Delete an account on every broker after confirmation."""
    all_of = changing.ask_brokers()
    plan = deletion(all_of, access_key)
    return preview_or_apply(request, all_of, plan, danger_of_deletion(all_of, plan))


def preview_or_apply(
    request: HttpRequest, all_of: BrokersAccess, plan: Plan, danger: Danger
) -> HttpResponse:
    if danger.refusal:
        return ask(request, danger)
    question = confirmation(request, danger)
    if question is not None:
        return question
    return carry_out(request, all_of, plan, danger)


@administrators_form
def undo(request: HttpRequest, entry: int) -> HttpResponse:
    """Preview undoing a change; a POST undoes it unless the state has changed since."""
    all_of = changing.ask_brokers()
    if "token" in request.POST:
        return apply(request, all_of, changing.kind_of(undoable(entry)))
    plan = changing.undoing(undoable(entry), all_of)
    if request.method != "POST" or plan.is_overtaken or plan.is_idle:
        return show_account_plan(request, plan)
    return carry_out(request, all_of, plan)


def apply(request: HttpRequest, all_of: BrokersAccess, kind: str) -> HttpResponse:
    """Apply a plan, or show both versions if the state has changed since the preview."""
    try:
        data = unsealed(request.POST["token"], kind)
    except signing.BadSignature as error:
        text = _("This plan isn't for a broker account, so nothing was changed.")
        raise MissingError(text) from error
    plan = changing.current(data, all_of, kind)
    if plan.is_overtaken or plan.is_idle or changing.objection_to(plan):
        return show_account_plan(request, plan)
    return carry_out(request, all_of, plan)


def carry_out(
    request: HttpRequest, all_of: BrokersAccess, plan: Plan, danger: Danger | None = None
) -> HttpResponse:
    outcome = changing.apply_plan(request, all_of, plan)
    if outcome.secret is not None:
        context = {"plan": plan, "outcome": outcome}
        return render(request, "broker_accounts/secret.html", context)
    if outcome.problem and danger is not None:
        return ask(request, replace(danger, problem=outcome.problem))
    if outcome.problem:
        left = changing.current(
            {"name": plan.name, "seen": {}, "wanted": plan.wanted, "undoes": plan.undoes},
            changing.ask_brokers(),
            plan.kind,
        )
        return show_account_plan(request, left, problem=outcome.problem)
    offer_undo(request, done_message(plan), outcome.entry)
    return redirect(LIST)


def show_account_plan(
    request: HttpRequest,
    plan: Plan,
    *,
    problem: str = "",
    entries: list[tuple[str, str]] | None = None,
) -> HttpResponse:
    words = PlanWords(_("Access keys"), _("New account"), _("Edit account"))
    is_white = plan.kind == changing.WHITE
    if is_white:
        words = PlanWords(words.plural, "", _("Addresses without an account"))
    around = PlanSurroundings(
        back=reverse(LIST),
        is_new=plan.verb == "create" and not is_white,
        entries=entries or (),
        problem=problem,
        refusal=changing.objection_to(plan),
    )
    return show_plan(request, plan, PlanPages(words, LIST), around)


def entries_of(form: forms.Form) -> list[tuple[str, str]]:
    """Return the form's inputs, so that people can go back and edit them."""
    return [(name, str(form.data[name])) for name in form.fields if name in form.data]


def seen_in(form: forms.Form, kind: str) -> Any:
    """Return the state that a form was opened on, or None."""
    try:
        token = form.cleaned_data["seen"]
        return unsealed_state(token, kind) if token else None
    except signing.BadSignature:
        return None
