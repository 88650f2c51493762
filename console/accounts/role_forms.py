"""The form of a role that is made here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from console.accounts.actions import ABOUT_GROUPS, ABOUT_TOPICS, Action
from console.accounts.models import ROLES_MAX, CustomRole

if TYPE_CHECKING:
    RoleModelForm = forms.ModelForm[CustomRole]
else:
    RoleModelForm = forms.ModelForm

PATTERNS_MAX = 50
PATTERN = re.compile(r"[%|\w*?-]{1,255}", re.ASCII)


class PatternsField(forms.CharField):
    """Names or patterns, one a line or with blanks between them."""

    widget = forms.Textarea(attrs={"rows": 3, "class": "input mono", "spellcheck": "false"})

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value

    def clean(self, value: Any) -> list[str]:
        kept = sorted(set(str(super().clean(value)).split()))
        if len(kept) > PATTERNS_MAX:
            raise ValidationError(
                _("These are %(count)d names; %(max)d at most. Use * for several."),
                params={"count": len(kept), "max": PATTERNS_MAX},
            )
        for each in kept:
            if not PATTERN.fullmatch(each):
                raise ValidationError(
                    _("%(text)s names nothing: letters, digits, %%, -, _ and | make a name."),
                    params={"text": each[:130]},
                )
        return kept


class RoleForm(RoleModelForm):
    """Asks what a role allows, and where."""

    actions = forms.MultipleChoiceField(
        label=_("It allows to"), choices=Action.choices, widget=forms.CheckboxSelectMultiple
    )
    topics = PatternsField(
        label=_("Topics"),
        required=False,
        help_text=_("One a line: orders, or orders-*. * is any text, ? one character."),
    )
    groups = PatternsField(
        label=_("Groups"),
        required=False,
        help_text=_("One a line. A group's retries and dead letters go by the group."),
    )

    class Meta:
        model = CustomRole
        fields = ("name", "description", "actions", "topics", "groups")
        labels = {"name": _("Name"), "description": _("What it is for")}

    def clean(self) -> dict[str, Any]:
        data = dict(super().clean() or {})
        chosen = {Action(each) for each in data.get("actions", ())}
        has_topics, has_groups = bool(data.get("topics")), bool(data.get("groups"))
        # A group's own topics are read by who may read its messages.
        if chosen & ABOUT_TOPICS and not (has_topics or has_groups):
            self.add_error("topics", _("Name the topics that this is allowed on."))
        if chosen & ABOUT_GROUPS and not has_groups:
            self.add_error("groups", _("Name the groups that this is allowed on."))
        if self.instance.pk is None and CustomRole.objects.count() >= ROLES_MAX:
            raise ValidationError(_("There are too many roles: delete some first."))
        return data
