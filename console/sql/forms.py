"""What the editor sends."""

from __future__ import annotations

from django import forms
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from console.preferences.zones import zone_names
from console.sql.models import NAME_CHARACTERS_MAX, SQL_CHARACTERS_MAX


class QueryForm(forms.Form):
    """A query, and the time zone in which its days begin."""

    sql = forms.CharField(label=_("Query"), max_length=SQL_CHARACTERS_MAX)
    zone = forms.CharField(required=False, max_length=100)

    def clean_zone(self) -> str:
        """Return a zone that this machine knows: the browser's, else the person's."""
        zone = str(self.cleaned_data.get("zone", ""))
        return zone if zone in zone_names() else timezone.get_current_timezone_name()


class SaveForm(QueryForm):
    """A query with a name to keep it by."""

    name = forms.CharField(label=_("Name"), max_length=NAME_CHARACTERS_MAX)
    is_shared = forms.BooleanField(label=_("Shared"), required=False)
