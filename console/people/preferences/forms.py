"""The settings form."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.utils.translation import gettext_lazy as _

from console.lib.zones import ZoneSelect, zone_names
from console.people.preferences.models import Preferences


class SettingsForm(forms.Form):
    """Language, time zone, density, theme."""

    language = forms.ChoiceField(
        label=_("Language"),
        required=False,
        help_text=_("E-mails and alerts use the language of their channel."),
    )
    zone = forms.ChoiceField(
        label=_("Time zone"),
        required=False,
        widget=ZoneSelect,
        help_text=_(
            "Applies to all times on all pages. The current zone is shown at the bottom of the "
            "menu."
        ),
    )
    density = forms.ChoiceField(label=_("Density"), choices=Preferences.Density.choices)
    theme = forms.ChoiceField(label=_("Theme"), choices=Preferences.Theme.choices)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        zone, language = self.fields["zone"], self.fields["language"]
        assert isinstance(zone, forms.ChoiceField)
        assert isinstance(language, forms.ChoiceField)
        zone.choices = [("", _("Browser default")), *((name, name) for name in zone_names())]
        language.choices = [("", _("Browser default")), *settings.LANGUAGES]
