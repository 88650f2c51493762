"""Pages of the rules of masking, for administrators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _

from console.accounts.permissions import administrators_form, administrators_page
from console.audit.record import change
from console.browse.content import path_of
from console.masking.engine import by_path, by_pattern
from console.masking.forms import RuleForm
from console.masking.models import MaskingRule
from console.ui.danger import Danger, unanswered

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


@administrators_page
def listing(request: HttpRequest) -> HttpResponse:
    """Show what is hidden, and where."""
    return render(request, "masking/list.html", {"rules": MaskingRule.objects.all()})


@administrators_form
def create(request: HttpRequest) -> HttpResponse:
    """Make a rule: it holds from the next message that is shown."""
    form = RuleForm(request.POST or None)
    if request.method != "POST" or not form.is_valid() or "try" in request.POST:
        return shown(request, form)
    made(request, form)
    messages.success(request, _("Rule %(name)s is made.") % {"name": form.instance.name})
    return redirect("masking:list")


def made(request: HttpRequest, form: RuleForm) -> MaskingRule:
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
        return shown(request, form, get_object_or_404(MaskingRule, pk=rule))
    saved = changed(request, form, before)
    messages.success(request, _("Rule %(name)s is changed.") % {"name": saved.name})
    return redirect("masking:list")


def changed(request: HttpRequest, form: RuleForm, before: dict[str, Any]) -> MaskingRule:
    with change(request, "masking.update", before["name"], before=before) as entry:
        rule: MaskingRule = form.save()
        entry.after = rule.as_kept | {"name": rule.name}
    return rule


def shown(request: HttpRequest, form: RuleForm, rule: MaskingRule | None = None) -> HttpResponse:
    """Show the form, with what the rule makes of the sample."""
    tried = tried_on_sample(form) if form.is_bound and form.is_valid() else None
    context = {"form": form, "rule": rule, "tried": tried}
    return render(request, "masking/rule.html", context, status=422 if form.errors else 200)


def tried_on_sample(form: RuleForm) -> str:
    """Return what a rule leaves of the sample."""
    kind, what = form.cleaned_data["kind"], form.cleaned_data["what"]
    sample: bytes = form.cleaned_data["sample"].encode()
    if kind == MaskingRule.Kind.PATTERN:
        sample = by_pattern(what, sample, is_cut=False)
    elif kind == MaskingRule.Kind.PATH and sample:
        sample = by_path(path_of(what), sample)
    return sample.decode()


@administrators_form
def delete(request: HttpRequest, rule: int) -> HttpResponse:
    """Delete a rule: what it hid is shown to all who read bodies."""
    kept = get_object_or_404(MaskingRule, pk=rule)
    question = unanswered(request, deletion_of(kept))
    if question is not None:
        return question
    messages.success(request, deleted(request, kept))
    return redirect("masking:list")


def deleted(request: HttpRequest, rule: MaskingRule) -> str:
    """Delete a rule; return what was done."""
    with change(request, "masking.delete", rule.name, before=rule.as_kept):
        rule.delete()
    return _("Rule %(name)s is deleted.") % {"name": rule.name}


def deletion_of(rule: MaskingRule) -> Danger:
    return Danger(
        title=_("Delete rule %(name)s?") % {"name": rule.name},
        text=_("What it hides is shown again to everyone who may read bodies of these topics."),
        undo=_("This cannot be undone; the audit keeps what the rule said."),
        action=_("Delete rule"),
        keep=_("Keep it"),
        address=reverse("masking:delete", args=[rule.pk]),
        back=reverse("masking:edit", args=[rule.pk]),
        name=rule.name,
    )
