"""The forms to replay and discard dead letters."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext_lazy as _

from console.messages.dead_letters.models import Target

RATE = 100
RATES = (1, 10, RATE, 1_000)


class ReplayForm(forms.Form):
    """The destination and rate of a replay, without defaults."""

    target = forms.ChoiceField(label=_("Send to"), choices=Target.choices, widget=forms.RadioSelect)
    rate = forms.TypedChoiceField(
        label=_("Max messages per second"),
        choices=[(rate, f"{rate}") for rate in RATES],
        coerce=int,
        initial=RATE,
    )
    trial = forms.BooleanField(label=_("Replay only one, to test the result"), required=False)
    again = forms.BooleanField(label=_("Include dead letters already handled"), required=False)


class DiscardForm(forms.Form):
    """The reason to discard dead letters."""

    reason = forms.CharField(label=_("Reason"), max_length=500)
