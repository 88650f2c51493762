"""The form that creates an API token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.utils.translation import gettext, gettext_lazy as _, ngettext_lazy

from console.accounts.scopes import AREAS, EVERYTHING, READ, WRITE, every_scope
from console.api.models import NAME_CHARACTERS_MAX, ApiToken
from console.api.tokens import DAYS

if TYPE_CHECKING:
    from django.contrib.auth.models import User

DAYS_DEFAULT = 90


class TokenForm(forms.Form):
    """A token's name, scopes and lifetime."""

    name = forms.CharField(
        label=_("Name"),
        max_length=NAME_CHARACTERS_MAX,
        help_text=_("Name of the program that uses the token. It appears in the audit log."),
    )
    scopes = forms.MultipleChoiceField(
        label=_("Permissions"),
        choices=[(each, each) for each in every_scope()],
        error_messages={"required": _("Choose at least one permission.")},
    )
    days = forms.TypedChoiceField(
        label=_("Expires after"),
        coerce=int,
        choices=[
            (each, ngettext_lazy("%(count)d day", "%(count)d days", each) % {"count": each})
            for each in DAYS
        ],
        initial=DAYS_DEFAULT,
    )

    def __init__(self, owner: User, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._owner = owner

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if not name.isprintable():
            raise forms.ValidationError(gettext("The name must be one line of text."))
        if ApiToken.objects.filter(owner=self._owner, name=name).exists():
            raise forms.ValidationError(gettext("You already have a token with this name."))
        return name

    @property
    def areas(self) -> list[dict[str, Any]]:
        """The scopes as table rows: each area with its read and write checkbox."""
        chosen = set(self["scopes"].data or ()) if self.is_bound else {f"{EVERYTHING}:{READ}"}
        rows = {EVERYTHING: gettext("Full access"), **AREAS}
        return [
            {
                "label": label,
                "scopes": [
                    {"value": scope, "verb": verb, "is_chosen": scope in chosen}
                    for verb in (READ, WRITE)
                    for scope in [f"{area}:{verb}"]
                ],
            }
            for area, label in rows.items()
        ]
