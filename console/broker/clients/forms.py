"""The form to disconnect a client."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext_lazy as _

from console.ui.danger import REASON_CHARACTERS_MAX


class DisconnectForm(forms.Form):
    """The client and the reason."""

    client_id = forms.CharField(label=_("Client"), max_length=255)
    reason = forms.CharField(label=_("Reason"), max_length=REASON_CHARACTERS_MAX)
