"""The form of a subscription group's configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from broker_core.message import names
from console.gateway.answers import GroupConfig
from console.gateway.kinds import is_system_group

if TYPE_CHECKING:
    from collections.abc import Iterable

RETRY_QUEUE_NUMS_MAX = 64
RETRY_TIMES_MAX = 1_000
BROKER_ID_MAX = 1_000
# The group's retry topic, %RETRY% with the name behind, must be a legal topic too.
GROUP_LENGTH_MAX = names.RETRY_TOPIC_LENGTH_MAX - len(names.RETRY_GROUP_TOPIC_PREFIX)


def name_problem(group: str) -> str | None:
    """Return what is wrong with the name of a group to be made, in one sentence for people."""
    if not group:
        return str(_("Give the group a name."))
    if not names.is_legal_name(group):
        return str(_("A name consists of letters, digits and the characters % | - _ only."))
    if len(group) > GROUP_LENGTH_MAX:
        limit = {"max": GROUP_LENGTH_MAX, "length": len(group)}
        return str(_("A name has at most %(max)d characters; this one has %(length)d.") % limit)
    if is_system_group(group):
        return str(_("This name is reserved for the broker's own groups."))
    return None


class GroupForm(forms.Form):
    """A group on some brokers; `original` makes it an edit, whose name cannot change."""

    group = forms.CharField(
        label=_("Name"),
        max_length=names.GROUP_LENGTH_MAX,
        help_text=_("Letters, digits and % | - _; the consumers' configuration names it."),
        widget=forms.TextInput(
            attrs={"autocomplete": "off", "spellcheck": "false", "placeholder": "billing_service"}
        ),
    )
    broker_names = forms.MultipleChoiceField(
        label=_("Brokers"), widget=forms.CheckboxSelectMultiple
    )
    consume_enable = forms.BooleanField(
        label=_("May consume"),
        required=False,
        help_text=_("Switched off, members stay connected and get nothing."),
    )
    consume_broadcast_enable = forms.BooleanField(
        label=_("May broadcast"),
        required=False,
        help_text=_("Lets members receive every message each."),
    )
    consume_from_min_enable = forms.BooleanField(
        label=_("May start at the oldest message"), required=False
    )
    notify_consumer_ids_changed_enable = forms.BooleanField(
        label=_("Tell members at once when one joins or leaves"), required=False
    )
    retry_max_times = forms.IntegerField(
        label=_("Retries at most"),
        min_value=-1,
        max_value=RETRY_TIMES_MAX,
        help_text=_("Then the message goes to the dead letter topic."),
    )
    retry_queue_nums = forms.IntegerField(
        label=_("Retry queues"), min_value=0, max_value=RETRY_QUEUE_NUMS_MAX
    )
    broker_id = forms.IntegerField(
        label=_("Read from broker id"),
        min_value=0,
        max_value=BROKER_ID_MAX,
        help_text=_("0 is the master."),
    )
    which_broker_when_consume_slowly = forms.IntegerField(
        label=_("Broker id when far behind"), min_value=0, max_value=BROKER_ID_MAX
    )

    def __init__(
        self,
        *args: Any,
        broker_names: Iterable[str],
        taken: Iterable[str] = (),
        original: GroupConfig | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._taken = frozenset(taken)
        self._original = original
        chosen = self.fields["broker_names"]
        assert isinstance(chosen, forms.MultipleChoiceField)
        chosen.choices = [(name, name) for name in broker_names]
        chosen.initial = list(broker_names)
        if original is not None:
            self.fields["group"].disabled = True
            self.fields["group"].help_text = ""
        shown = original or GroupConfig("")
        for name in self.fields.keys() - {"broker_names"}:
            self.initial[name] = getattr(shown, name)

    def clean_group(self) -> str:
        group = str(self.cleaned_data["group"])
        if self._original is not None:
            return self._original.group
        problem = name_problem(group)
        if problem is not None:
            raise ValidationError(problem)
        if group in self._taken:
            raise ValidationError(_("A group of this name exists."))
        return group

    def config(self) -> GroupConfig:
        """Return what the form says; only after `is_valid`."""
        values = {name: self.cleaned_data[name] for name in self.fields if name != "broker_names"}
        return GroupConfig(**values)
