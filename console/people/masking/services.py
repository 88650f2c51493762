"""Masking rules: create, try, change and delete them, for the pages and the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.urls import reverse
from django.utils.translation import gettext as _

from console.lib.content import path_of
from console.people.audit.record import change
from console.people.masking.engine import by_path, by_pattern
from console.people.masking.models import MaskingRule
from console.ui.danger import Danger

if TYPE_CHECKING:
    from django.http import HttpRequest

    from console.people.masking.forms import RuleForm


def create_rule(request: HttpRequest, form: RuleForm) -> MaskingRule:
    with change(request, "masking.create", form.cleaned_data["name"]) as entry:
        rule: MaskingRule = form.save()
        entry.after = rule.as_kept
    return rule


def update_rule(request: HttpRequest, form: RuleForm, before: dict[str, Any]) -> MaskingRule:
    with change(request, "masking.update", before["name"], before=before) as entry:
        rule: MaskingRule = form.save()
        entry.after = rule.as_kept | {"name": rule.name}
    return rule


def mask_sample(form: RuleForm) -> str:
    """Return the sample as a rule masks it."""
    kind, what = form.cleaned_data["kind"], form.cleaned_data["what"]
    sample: bytes = form.cleaned_data["sample"].encode()
    if kind == MaskingRule.Kind.PATTERN:
        sample = by_pattern(what, sample, is_cut=False)
    elif kind == MaskingRule.Kind.PATH and sample:
        sample = by_path(path_of(what), sample)
    return sample.decode()


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
