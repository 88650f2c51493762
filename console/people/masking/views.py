"""Masking rule pages, for administrators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import messages
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _

from console.accounts.permissions import administrators_form, administrators_page
from console.people.masking.forms import RuleForm
from console.people.masking.models import MaskingRule
from console.people.masking.services import (
    create_rule,
    delete_rule,
    deletion_of,
    mask_sample,
    update_rule,
)
from console.ui.danger import confirmation

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


@administrators_page
def listing(request: HttpRequest) -> HttpResponse:
    """List the rules and their topics."""
    return render(request, "masking/list.html", {"rules": MaskingRule.objects.all()})


@administrators_form
def create(request: HttpRequest) -> HttpResponse:
    """Create a rule; it applies to all messages shown from now on."""
    form = RuleForm(request.POST or None)
    if request.method != "POST" or not form.is_valid() or "try" in request.POST:
        return show_form(request, form)
    create_rule(request, form)
    messages.success(request, _("Rule %(name)s was created.") % {"name": form.instance.name})
    return redirect("masking:list")


@administrators_form
def edit(request: HttpRequest, rule: int) -> HttpResponse:
    """Change a rule."""
    kept = get_object_or_404(MaskingRule, pk=rule)
    before = kept.as_kept | {"name": kept.name}
    form = RuleForm(request.POST or None, instance=kept)
    if request.method != "POST" or not form.is_valid() or "try" in request.POST:
        return show_form(request, form, get_object_or_404(MaskingRule, pk=rule))
    saved = update_rule(request, form, before)
    messages.success(request, _("Rule %(name)s was changed.") % {"name": saved.name})
    return redirect("masking:list")


def show_form(
    request: HttpRequest, form: RuleForm, rule: MaskingRule | None = None
) -> HttpResponse:
    """Show the form, with the sample as the rule masks it."""
    tried = mask_sample(form) if form.is_bound and form.is_valid() else None
    context = {"form": form, "rule": rule, "tried": tried}
    return render(request, "masking/rule.html", context, status=422 if form.errors else 200)


@administrators_form
def delete(request: HttpRequest, rule: int) -> HttpResponse:
    """Delete a rule, so that everyone who reads bodies sees what it hid."""
    kept = get_object_or_404(MaskingRule, pk=rule)
    question = confirmation(request, deletion_of(kept))
    if question is not None:
        return question
    messages.success(request, delete_rule(request, kept))
    return redirect("masking:list")
