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
    """A configuration on some brokers; `original` makes it an edit, whose name cannot change.

    A subclass names the field that holds the name, and says what is special about names.
    """

    name_field: str
    name_length_max: int
    name_missing: Promise
    name_taken: Promise

    broker_names = forms.MultipleChoiceField(
        label=gettext_lazy("Brokers"), widget=forms.CheckboxSelectMultiple
    )

    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(
        self,
        *args: Any,
        broker_names: Iterable[str],
        taken: Iterable[str] = (),
        original: Config | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.taken = frozenset(taken)
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
        """The name the form says; only after `is_valid`."""
        return str(self.cleaned_data[self.name_field])

    @property
    def chosen_brokers(self) -> list[str]:
        """The brokers the form says; only after `is_valid`."""
        return list(self.cleaned_data["broker_names"])

    def was_opened_on(self, seen: str) -> None:
        """Have the form carry what it is opened on; only on an edit."""
        self.initial["seen"] = seen
        if self.is_bound:
            data = QueryDict(mutable=True)
            data.update(self.data)
            data["seen"] = seen
            self.data = data

    def config(self) -> Config:
        """Return what the form says; only after `is_valid`."""
        raise NotImplementedError

    def reserved(self, name: str) -> str | None:
        """Return why the brokers keep a name to themselves, None where they do not."""
        raise NotImplementedError

    def clean_name(self) -> str:
        """Return the name of a configuration that may be made.

        Raises:
            ValidationError: what is wrong with the name.
        """
        name = str(self.cleaned_data[self.name_field])
        if self.original is not None:
            return name
        problem = self.name_problem(name)
        if problem is not None:
            raise ValidationError(problem)
        if name in self.taken:
            raise ValidationError(str(self.name_taken))
        return name

    def name_problem(self, name: str) -> str | None:
        """Return what is wrong with a new name, in one sentence for people."""
        if not name:
            return str(self.name_missing)
        if not names.is_legal_name(name):
            return _("A name consists of letters, digits and the characters % | - _ only.")
        if len(name) > self.name_length_max:
            limit = {"max": self.name_length_max, "length": len(name)}
            return _("A name has at most %(max)d characters; this one has %(length)d.") % limit
        return self.reserved(name)
