"""The form of a custom role."""

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
    """Names or patterns, separated by line breaks or spaces."""

    widget = forms.Textarea(attrs={"rows": 3, "class": "input mono", "spellcheck": "false"})

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value

    def clean(self, value: Any) -> list[str]:
        kept = sorted(set(str(super().clean(value)).split()))
        if len(kept) > PATTERNS_MAX:
            raise ValidationError(
                _("You entered %(count)d names; the limit is %(max)d. Use * to match several."),
                params={"count": len(kept), "max": PATTERNS_MAX},
            )
        for each in kept:
            if not PATTERN.fullmatch(each):
                raise ValidationError(
                    _("“%(text)s” isn't a valid name. Use letters, digits, %%, -, _ and |."),
                    params={"text": each[:130]},
                )
        return kept


class RoleForm(RoleModelForm):
    """Asks for a custom role's actions and the names they apply to."""

    actions = forms.MultipleChoiceField(
        label=_("Permissions"), choices=Action.choices, widget=forms.CheckboxSelectMultiple
    )
    topics = PatternsField(
        label=_("Topics"),
        required=False,
        help_text=_("One per line: orders, or orders-*. * matches any text, ? one character."),
    )
    groups = PatternsField(
        label=_("Groups"),
        required=False,
        help_text=_("One per line. A group's retries and dead letters belong to the group."),
    )

    class Meta:
        model = CustomRole
        fields = ("name", "description", "actions", "topics", "groups")
        labels = {"name": _("Name"), "description": _("Description")}

    def clean(self) -> dict[str, Any]:
        data = dict(super().clean() or {})
        chosen = {Action(each) for each in data.get("actions", ())}
        has_topics, has_groups = bool(data.get("topics")), bool(data.get("groups"))
        # People who can read a group's messages may also read its retry and dead-letter topics.
        if chosen & ABOUT_TOPICS and not (has_topics or has_groups):
            self.add_error("topics", _("Enter the topics this applies to."))
        if chosen & ABOUT_GROUPS and not has_groups:
            self.add_error("groups", _("Enter the groups this applies to."))
        if self.instance.pk is None and CustomRole.objects.count() >= ROLES_MAX:
            raise ValidationError(_("There are too many roles. Delete some first."))
        return data
