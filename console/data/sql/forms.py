"""Forms of the query editor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from console.data.sql.models import NAME_CHARACTERS_MAX, SQL_CHARACTERS_MAX
from console.data.sql.rights import TOPICS_MAX, RightError, checked
from console.lib.zones import zone_names

if TYPE_CHECKING:
    from collections.abc import Mapping


class QueryForm(forms.Form):
    """A query, and the time zone for its days."""

    sql = forms.CharField(label=_("Query"), max_length=SQL_CHARACTERS_MAX)
    zone = forms.CharField(required=False, max_length=100)

    def clean_zone(self) -> str:
        """Return the browser's time zone if this machine knows it, else the person's."""
        zone = str(self.cleaned_data.get("zone", ""))
        return zone if zone in zone_names() else timezone.get_current_timezone_name()


class SaveForm(QueryForm):
    """A query, and the name to save it under."""

    name = forms.CharField(label=_("Name"), max_length=NAME_CHARACTERS_MAX)
    is_shared = forms.BooleanField(label=_("Shared"), required=False)


class RightForm(forms.Form):
    """Who can query the lake, and which topics."""

    grantee = forms.ChoiceField(label=_("Person or group"))
    scope = forms.ChoiceField(
        label=_("Topics"),
        choices=[("all", _("all topics")), ("some", _("selected topics"))],
    )
    topics = forms.CharField(
        label=_("Topics"),
        required=False,
        max_length=TOPICS_MAX * 128,
        help_text=_(
            "Topic names separated by spaces or commas. * matches any characters, for example "
            "shop-*"
        ),
    )

    def __init__(self, *args: Any, grantees: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        grantee = self.fields["grantee"]
        assert isinstance(grantee, forms.ChoiceField)
        grantee.choices = [("", "—"), *grantees.items()]

    def clean(self) -> dict[str, Any]:
        """Set `wanted` to the list of topics, or None for all."""
        found = self.cleaned_data
        found["wanted"] = None
        if found.get("scope") == "some":
            names = str(found.get("topics", "")).replace(",", " ").split()
            try:
                found["wanted"] = tuple(checked(names))
            except RightError as error:
                self.add_error("topics", str(error))
        return found
