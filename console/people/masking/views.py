"""Masking rule pages, for administrators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _

from console.accounts.permissions import administrators_form, administrators_page
from console.lib.content import path_of
from console.people.audit.record import change
from console.people.masking.engine import by_path, by_pattern
from console.people.masking.forms import RuleForm
from console.people.masking.models import MaskingRule
from console.ui.danger import Danger, confirmation

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


def create_rule(request: HttpRequest, form: RuleForm) -> MaskingRule:
    with change(request, "masking.create", form.cleaned_data["name"]) as entry:
        rule: MaskingRule = form.save()
        entry.after = rule.as_kept
    return rule


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


def update_rule(request: HttpRequest, form: RuleForm, before: dict[str, Any]) -> MaskingRule:
    with change(request, "masking.update", before["name"], before=before) as entry:
        rule: MaskingRule = form.save()
        entry.after = rule.as_kept | {"name": rule.name}
    return rule


def show_form(
    request: HttpRequest, form: RuleForm, rule: MaskingRule | None = None
) -> HttpResponse:
    """Show the form, with the sample as the rule masks it."""
    tried = mask_sample(form) if form.is_bound and form.is_valid() else None
    context = {"form": form, "rule": rule, "tried": tried}
    return render(request, "masking/rule.html", context, status=422 if form.errors else 200)


def mask_sample(form: RuleForm) -> str:
    """Return the sample as a rule masks it."""
    kind, what = form.cleaned_data["kind"], form.cleaned_data["what"]
    sample: bytes = form.cleaned_data["sample"].encode()
    if kind == MaskingRule.Kind.PATTERN:
        sample = by_pattern(what, sample, is_cut=False)
    elif kind == MaskingRule.Kind.PATH and sample:
        sample = by_path(path_of(what), sample)
    return sample.decode()


@administrators_form
def delete(request: HttpRequest, rule: int) -> HttpResponse:
    """Delete a rule, so that everyone who reads bodies sees what it hid."""
    kept = get_object_or_404(MaskingRule, pk=rule)
    question = confirmation(request, deletion_of(kept))
    if question is not None:
        return question
    messages.success(request, delete_rule(request, kept))
    return redirect("masking:list")


def delete_rule(request: HttpRequest, rule: MaskingRule) -> str:
    """Delete a rule; return a sentence about it."""
    with change(request, "masking.delete", rule.name, before=rule.as_kept):
        rule.delete()
    return _("Rule %(name)s was deleted.") % {"name": rule.name}


def deletion_of(rule: MaskingRule) -> Danger:
    return Danger(
        title=_("Delete rule %(name)s?") % {"name": rule.name},
        text=_(
            "Everyone who can read message bodies in these topics will see the hidden parts again."
        ),
        undo=_("This can't be undone. The audit log keeps the rule's definition."),
        action=_("Delete rule"),
        keep=_("Cancel"),
        address=reverse("masking:delete", args=[rule.pk]),
        back=reverse("masking:edit", args=[rule.pk]),
        name=rule.name,
    )
