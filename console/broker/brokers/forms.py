"""Forms of a broker's configuration and of the key-value table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.utils.translation import gettext as _, gettext_lazy, pgettext_lazy

from console.gateway.naming import ORDER_TOPIC_CONFIG
from console.ui.templatetags.ui import grouped

if TYPE_CHECKING:
    from console.gateway.configuration import BrokerKey

NAME_CHARACTERS_MAX, VALUE_CHARACTERS_MAX = 255, 4_096


class KeyForm(forms.Form):
    """The new value of one key."""

    def __init__(self, key: BrokerKey, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["value"] = field_of(key)
        self.fields["seen"] = forms.CharField(required=False, widget=forms.HiddenInput)
        self.initial.update(value=key.value, seen=key.value)


def field_of(key: BrokerKey) -> forms.Field:
    if key.choices:
        return forms.ChoiceField(label=key.key, choices=[(each, each) for each in key.choices])
    if key.kind == "int":
        high = f"{grouped(key.high)} {key.unit}".strip()
        text = _("From %(low)s to %(high)s.") % {"low": grouped(key.low), "high": high}
        return forms.IntegerField(
            label=key.key, min_value=key.low, max_value=key.high, help_text=text
        )
    return forms.CharField(
        label=key.key,
        required=False,
        max_length=VALUE_CHARACTERS_MAX,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )


PLAIN = {"autocomplete": "off", "spellcheck": "false"}


class KvForm(forms.Form):
    """An entry of a namespace."""

    namespace = forms.CharField(
        label=gettext_lazy("Namespace"),
        max_length=NAME_CHARACTERS_MAX,
        initial=ORDER_TOPIC_CONFIG,
        widget=forms.TextInput(attrs=PLAIN),
    )
    key = forms.CharField(
        label=pgettext_lazy("setting", "Key"),
        help_text=gettext_lazy("For ORDER_TOPIC_CONFIG, the topic name."),
        max_length=NAME_CHARACTERS_MAX,
        widget=forms.TextInput(attrs=PLAIN),
    )
    value = forms.CharField(
        label=gettext_lazy("Value"),
        help_text=gettext_lazy(
            "For ORDER_TOPIC_CONFIG, the number of queues on each broker, for example "
            "broker-a:4;broker-b:4."
        ),
        max_length=VALUE_CHARACTERS_MAX,
        widget=forms.TextInput(attrs=PLAIN),
    )
    seen = forms.CharField(required=False, widget=forms.HiddenInput)
