"""The masking rule form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from broker_core.message.names import PROPERTY_NAMES
from console.lib.content import PathError, path_of
from console.people.accounts.role_forms import PatternsField
from console.people.masking.engine import PatternError, pattern_of
from console.people.masking.models import RULES_MAX, MaskingRule

if TYPE_CHECKING:
    RuleModelForm = forms.ModelForm[MaskingRule]
else:
    RuleModelForm = forms.ModelForm

SAMPLE_CHARACTERS_MAX = 10_000


class RuleForm(RuleModelForm):
    """What to hide, and in which topics; the sample is only for testing and isn't saved."""

    topics = PatternsField(
        label=_("Topics"),
        help_text=_("One per line: orders, or orders-*; * alone matches every topic."),
    )
    sample = forms.CharField(
        label=_("Test with a body"),
        required=False,
        strip=False,
        max_length=SAMPLE_CHARACTERS_MAX,
        widget=forms.Textarea(attrs={"rows": 4, "class": "input mono", "spellcheck": "false"}),
    )

    class Meta:
        model = MaskingRule
        fields = ("name", "topics", "kind", "what")
        labels = {"name": _("Name"), "kind": _("Hide"), "what": _("Pattern, path or property name")}
        widgets = {
            "what": forms.TextInput(attrs={"class": "input mono", "spellcheck": "false"}),
        }
        help_texts = {
            "what": _(
                "An RE2 pattern: [0-9]{13,19}. A JSON path: $.customer.cards[*].number. A "
                "property: iban."
            )
        }

    def clean(self) -> dict[str, Any]:
        data = dict(super().clean() or {})
        kind, what = data.get("kind"), str(data.get("what", ""))
        try:
            if kind == MaskingRule.Kind.PATTERN and pattern_of(what).search("") is not None:
                self.add_error(
                    "what", _("This pattern also matches empty text. Make it more specific.")
                )
            if kind == MaskingRule.Kind.PATH:
                path_of(what)
        except PatternError as error:
            self.add_error("what", _("This isn't a valid pattern: %(why)s.") % {"why": error})
        except PathError:
            self.add_error("what", _("This isn't a valid JSON path. Use a form like $.a.b[0]."))
        if kind == MaskingRule.Kind.PROPERTY and what in PROPERTY_NAMES:
            self.add_error(
                "what",
                _(
                    "RocketMQ's own properties appear in indexes and traces, so they can't be "
                    "masked."
                ),
            )
        if self.instance.pk is None and MaskingRule.objects.count() >= RULES_MAX:
            raise ValidationError(_("There are too many rules. Delete some first."))
        return data
