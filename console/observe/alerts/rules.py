"""Alert rules: describe, save, switch and delete them, for the pages and the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.urls import reverse
from django.utils.translation import gettext as _

from console.lib.moment import now_ms
from console.observe.alerts.evaluator import end_all
from console.observe.alerts.models import Rule
from console.observe.alerts.notices import announce
from console.observe.alerts.series import SERIES
from console.observe.alerts.wording import number
from console.observe.verdicts.words import WORDS
from console.people.audit.record import change
from console.ui.danger import Danger, Effect

if TYPE_CHECKING:
    from django.http import HttpRequest

    from console.observe.alerts.forms import RuleForm


def described(rule: Rule) -> str:
    """Return a one-line description of a rule's condition."""
    if rule.source == Rule.Source.VERDICT:
        names = [str(WORDS[each].title) for each in rule.verdicts if each in WORDS]
        kinds = ", ".join(names) or _("all issues")
        return f"{kinds} ({rule.get_least_display()})"
    if rule.source == Rule.Source.QUERY:
        name = _("a deleted query") if rule.query is None else rule.query.name
        return _("%(name)s returned rows") % {"name": name}
    series = SERIES.get(rule.series)
    if series is None:
        return rule.series
    what = series.title
    if rule.compare == Rule.Compare.MISSING:
        return f"{what} {rule.get_compare_display()}"
    return f"{what} {rule.get_compare_display()} {number(rule.fires_at)} {series.unit}".strip()


def audit_state(rule: Rule) -> dict[str, Any]:
    """Return the values that the audit log compares."""
    names = [each.attname for each in Rule._meta.fields]
    values = {name: getattr(rule, name) for name in names if name not in ("id", "version")}
    channels = [each.name for each in rule.channels.all()] if rule.pk else []
    return values | {"channels": channels}


def save_rule(
    request: HttpRequest, form: RuleForm, before: dict[str, Any] | None, version: int
) -> Rule:
    """Save a valid form under an audit log entry; `before` is None for a new rule."""
    is_new = before is None
    action = "alert-rule.create" if is_new else "alert-rule.update"
    name = form.cleaned_data["name"]
    with change(request, action, name, before=before) as entry, transaction.atomic():
        saved: Rule = form.save(commit=False)
        saved.version = version if is_new else version + 1
        saved.save()
        form.save_m2m()
        entry.after = audit_state(saved)
    return saved


def switch_rule(request: HttpRequest, rule: Rule, *, on: bool) -> None:
    """Enable or disable a rule under an audit log entry."""
    before, after = {"enabled": rule.enabled}, {"enabled": on}
    with change(request, "alert-rule.switch", rule.name, before=before, after=after):
        Rule.objects.filter(pk=rule.pk).update(enabled=on, version=rule.version + 1)


def danger_of(rule: Rule) -> Danger:
    """Return the confirmation for deleting a rule, which ends its alerts and silences."""
    channels = [each.name for each in rule.channels.all()]
    return Danger(
        title=_("Delete rule %(name)s?") % {"name": rule.name},
        text=described(rule),
        effects=(
            Effect(
                _("Alerts that will be resolved"),
                rule.alerts.filter(open_key__isnull=False).count(),
                _("their history is kept"),
                is_bad=True,
            ),
            Effect(_("Silences that will be deleted"), rule.silences.count()),
            Effect(
                _("Channels that will no longer be notified"), len(channels), ", ".join(channels)
            ),
        ),
        undo=_("This can't be undone. To pause the channel, turn it off instead."),
        action=_("Delete rule"),
        keep=_("Cancel"),
        address=reverse("alerts:rule-delete", args=[rule.pk]),
        back=reverse("alerts:rule-edit", args=[rule.pk]),
        name=rule.name,
    )


def delete_rule(request: HttpRequest, rule: Rule) -> None:
    """Delete a rule and end its alerts, under an audit log entry."""
    with (
        change(request, "alert-rule.delete", rule.name, before=audit_state(rule)),
        transaction.atomic(),
    ):
        now = now_ms()
        end_all(rule, now)
        rule.threads.all().delete()
        announce(rule, 0, now)
        rule.delete()
