"""The form of a named configuration on some brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from django import forms
from django.core.exceptions import ValidationError
from django.http import QueryDict
from django.utils.translation import gettext as _, gettext_lazy

from broker_core.message import names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.utils.functional import Promise

Config = TypeVar("Config")


class ConfigForm(forms.Form, Generic[Config]):
    """A configuration on some brokers; `original` makes it an edit, whose name can't change.

    A subclass names the field that holds the name, and defines the rules for names.
    """

    name_field: str
    name_length_max: int
    name_missing: Promise
    name_in_use: Promise

    broker_names = forms.MultipleChoiceField(
        label=gettext_lazy("Brokers"), widget=forms.CheckboxSelectMultiple
    )

    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(
        self,
        *args: Any,
        broker_names: Iterable[str],
        used_names: Iterable[str] = (),
        original: Config | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.used_names = frozenset(used_names)
        self.original = original
        chosen = self.fields["broker_names"]
        assert isinstance(chosen, forms.MultipleChoiceField)
        chosen.choices = [(name, name) for name in broker_names]
        chosen.initial = list(broker_names)
        if original is not None:
            self.fields[self.name_field].disabled = True
            self.fields[self.name_field].help_text = ""

    @property
    def name(self) -> str:
        """The name in the form; only after `is_valid`."""
        return str(self.cleaned_data[self.name_field])

    @property
    def chosen_brokers(self) -> list[str]:
        """The brokers in the form; only after `is_valid`."""
        return list(self.cleaned_data["broker_names"])

    def add_seen_state(self, seen: str) -> None:
        """Add a hidden field with the state that the form was opened on; only for an edit."""
        self.initial["seen"] = seen
        if self.is_bound:
            data = QueryDict(mutable=True)
            data.update(self.data)
            data["seen"] = seen
            self.data = data

    def config(self) -> Config:
        """Return the configuration in the form; only after `is_valid`."""
        raise NotImplementedError

    def reserved(self, name: str) -> str | None:
        """Return why brokers reserve a name, or None if they don't."""
        raise NotImplementedError

    def clean_name(self) -> str:
        """Return a valid name for a new configuration.

        Raises:
            ValidationError: the name is invalid.
        """
        name = str(self.cleaned_data[self.name_field])
        if self.original is not None:
            return name
        problem = self.name_problem(name)
        if problem is not None:
            raise ValidationError(problem)
        if name in self.used_names:
            raise ValidationError(str(self.name_in_use))
        return name

    def name_problem(self, name: str) -> str | None:
        """Return a sentence that explains why a new name is invalid, or None."""
        if not name:
            return str(self.name_missing)
        if not names.is_legal_name(name):
            return _("Names can contain only letters, digits and the characters % | - _")
        if len(name) > self.name_length_max:
            limit = {"max": self.name_length_max, "length": len(name)}
            return _("Names can have at most %(max)d characters; this one has %(length)d.") % limit
        return self.reserved(name)
