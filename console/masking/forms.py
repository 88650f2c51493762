"""The form of a rule of masking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from broker_core.message.names import PROPERTY_NAMES
from console.accounts.role_forms import PatternsField
from console.browse.content import PathError, path_of
from console.masking.engine import PatternError, pattern_of
from console.masking.models import RULES_MAX, MaskingRule

if TYPE_CHECKING:
    RuleModelForm = forms.ModelForm[MaskingRule]
else:
    RuleModelForm = forms.ModelForm

SAMPLE_CHARACTERS_MAX = 10_000


class RuleForm(RuleModelForm):
    """Asks what is hidden, and in which topics; a sample is tried, and not kept."""

    topics = PatternsField(
        label=_("Topics"), help_text=_("One a line: orders, or orders-*; * alone is every topic.")
    )
    sample = forms.CharField(
        label=_("Try it on a body"),
        required=False,
        strip=False,
        max_length=SAMPLE_CHARACTERS_MAX,
        widget=forms.Textarea(attrs={"rows": 4, "class": "input mono", "spellcheck": "false"}),
    )

    class Meta:
        model = MaskingRule
        fields = ("name", "topics", "kind", "what")
        labels = {"name": _("Name"), "kind": _("It hides"), "what": _("Pattern, path or name")}
        widgets = {
            "what": forms.TextInput(attrs={"class": "input mono", "spellcheck": "false"}),
        }
        help_texts = {
            "what": _(
                "A pattern as RE2 reads it: [0-9]{13,19}. A path: $.customer.cards[*].number. "
                "A property: iban."
            )
        }

    def clean(self) -> dict[str, Any]:
        data = dict(super().clean() or {})
        kind, what = data.get("kind"), str(data.get("what", ""))
        try:
            if kind == MaskingRule.Kind.PATTERN and pattern_of(what).search("") is not None:
                self.add_error("what", _("It matches nothing at all, too: name what is hidden."))
            if kind == MaskingRule.Kind.PATH:
                path_of(what)
        except PatternError as error:
            self.add_error("what", _("This is no pattern: %(why)s.") % {"why": error})
        except PathError:
            self.add_error("what", _("This is no path into JSON; one is written like $.a.b[0]."))
        if kind == MaskingRule.Kind.PROPERTY and what in PROPERTY_NAMES:
            self.add_error(
                "what", _("RocketMQ's own properties are in indexes and traces; they are shown.")
            )
        if self.instance.pk is None and MaskingRule.objects.count() >= RULES_MAX:
            raise ValidationError(_("There are too many rules: delete some first."))
        return data
