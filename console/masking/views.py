"""Pages of the rules of masking, for administrators."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    with change(request, "masking.create", form.cleaned_data["name"]) as entry:
        entry.after = form.save().as_kept
    messages.success(request, _("Rule %(name)s is made.") % {"name": form.instance.name})
    return redirect("masking:list")


@administrators_form
def edit(request: HttpRequest, rule: int) -> HttpResponse:
    """Change a rule."""
    kept = get_object_or_404(MaskingRule, pk=rule)
    before = kept.as_kept | {"name": kept.name}
    form = RuleForm(request.POST or None, instance=kept)
    if request.method != "POST" or not form.is_valid() or "try" in request.POST:
        return shown(request, form, get_object_or_404(MaskingRule, pk=rule))
    with change(request, "masking.update", before["name"], before=before) as entry:
        saved = form.save()
        entry.after = saved.as_kept | {"name": saved.name}
    messages.success(request, _("Rule %(name)s is changed.") % {"name": saved.name})
    return redirect("masking:list")


def shown(request: HttpRequest, form: RuleForm, rule: MaskingRule | None = None) -> HttpResponse:
    """Show the form, with what the rule makes of the sample."""
    tried = None
    if form.is_bound and form.is_valid():
        kind, what = form.cleaned_data["kind"], form.cleaned_data["what"]
        sample = form.cleaned_data["sample"].encode()
        if kind == MaskingRule.Kind.PATTERN:
            sample = by_pattern(what, sample, is_cut=False)
        elif kind == MaskingRule.Kind.PATH and sample:
            sample = by_path(path_of(what), sample)
        tried = sample.decode()
    context = {"form": form, "rule": rule, "tried": tried}
    return render(request, "masking/rule.html", context, status=422 if form.errors else 200)


@administrators_form
def delete(request: HttpRequest, rule: int) -> HttpResponse:
    """Delete a rule: what it hid is shown to all who read bodies."""
    kept = get_object_or_404(MaskingRule, pk=rule)
    danger = Danger(
        title=_("Delete rule %(name)s?") % {"name": kept.name},
        text=_("What it hides is shown again to everyone who may read bodies of these topics."),
        undo=_("This cannot be undone; the audit keeps what the rule said."),
        action=_("Delete rule"),
        keep=_("Keep it"),
        address=reverse("masking:delete", args=[kept.pk]),
        back=reverse("masking:edit", args=[kept.pk]),
        name=kept.name,
    )
    question = unanswered(request, danger)
    if question is not None:
        return question
    with change(request, "masking.delete", kept.name, before=kept.as_kept):
        kept.delete()
    messages.success(request, _("Rule %(name)s is deleted.") % {"name": kept.name})
    return redirect("masking:list")
