"""The form of a replay."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext_lazy as _

from console.dead_letters.models import Target

RATE = 100
RATES = (1, 10, RATE, 1_000)


class ReplayForm(forms.Form):
    """Where replayed messages go, and how fast. Nothing is chosen for anybody."""

    target = forms.ChoiceField(
        label=_("Send them to"), choices=Target.choices, widget=forms.RadioSelect
    )
    rate = forms.TypedChoiceField(
        label=_("At most so many a second"),
        choices=[(rate, f"{rate}") for rate in RATES],
        coerce=int,
        initial=RATE,
    )
    trial = forms.BooleanField(
        label=_("Only one of them, to see what becomes of it"), required=False
    )
    again = forms.BooleanField(label=_("Those that were seen to before, too"), required=False)


class DiscardForm(forms.Form):
    """Why dead letters are not needed."""

    reason = forms.CharField(label=_("Reason"), max_length=500)
