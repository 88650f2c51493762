"""The form of a consumer group's configuration."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from django import forms
from django.utils.translation import gettext, gettext_lazy as _

from broker_core.message import names
from console.broker.configs.forms import ConfigForm
from console.gateway.answers import GroupConfig
from console.gateway.kinds import is_system_group

RETRY_QUEUE_NUMS_MAX = 64
RETRY_TIMES_MAX = 1_000
BROKER_ID_MAX = 1_000
# The group's retry topic, %RETRY% and the name, must be a valid topic name too.
GROUP_LENGTH_MAX = names.RETRY_TOPIC_LENGTH_MAX - len(names.RETRY_GROUP_TOPIC_PREFIX)


class GroupForm(ConfigForm[GroupConfig]):
    """A group on some brokers."""

    name_field = "group"
    name_length_max = GROUP_LENGTH_MAX
    name_missing = _("Enter a group name.")
    name_in_use = _("A group with this name already exists.")

    group = forms.CharField(
        label=_("Name"),
        max_length=names.GROUP_LENGTH_MAX,
        help_text=_(
            "Letters, digits and % | - _ only. Consumers use this name in their configuration."
        ),
        widget=forms.TextInput(
            attrs={"autocomplete": "off", "spellcheck": "false", "placeholder": "billing_service"}
        ),
    )
    consume_enable = forms.BooleanField(
        label=_("Allow consuming"),
        required=False,
        help_text=_("While off, consumers stay connected but receive no messages."),
    )
    consume_broadcast_enable = forms.BooleanField(
        label=_("Allow broadcasting"),
        required=False,
        help_text=_("Whether each consumer can receive every message."),
    )
    consume_from_min_enable = forms.BooleanField(
        label=_("Allow starting from the oldest message"), required=False
    )
    notify_consumer_ids_changed_enable = forms.BooleanField(
        label=_("Notify consumers immediately when a consumer joins or leaves"), required=False
    )
    retry_max_times = forms.IntegerField(
        label=_("Max retries"),
        min_value=-1,
        max_value=RETRY_TIMES_MAX,
        help_text=_("After the last retry, the message goes to the dead-letter topic."),
    )
    retry_queue_nums = forms.IntegerField(
        label=_("Retry queues"), min_value=0, max_value=RETRY_QUEUE_NUMS_MAX
    )
    broker_id = forms.IntegerField(
        label=_("Preferred broker ID"),
        min_value=0,
        max_value=BROKER_ID_MAX,
        help_text=_("0 is the master."),
    )
    which_broker_when_consume_slowly = forms.IntegerField(
        label=_("Broker ID when far behind"), min_value=0, max_value=BROKER_ID_MAX
    )

    def __init__(self, *args: Any, original: GroupConfig | None = None, **kwargs: Any) -> None:
        super().__init__(*args, original=original, **kwargs)
        shown = original or GroupConfig("")
        self.initial.update(asdict(shown))

    def reserved(self, name: str) -> str | None:
        if is_system_group(name):
            return gettext("This name is reserved for internal broker groups.")
        return None

    def clean_group(self) -> str:
        return self.clean_name()

    def config(self) -> GroupConfig:
        return GroupConfig(
            **{each.name: self.cleaned_data[each.name] for each in fields(GroupConfig)}
        )
