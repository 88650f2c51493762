"""The form of disconnecting a client."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext_lazy as _

from console.ui.danger import REASON_CHARACTERS_MAX


class DisconnectForm(forms.Form):
    """Which client, and why."""

    client_id = forms.CharField(label=_("Client"), max_length=255)
    reason = forms.CharField(label=_("Reason"), max_length=REASON_CHARACTERS_MAX)
