"""The topic configuration form."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext, gettext_lazy as _

from broker_core.message import names
from console.broker.configs.forms import ConfigForm
from console.gateway.answers import TopicConfig, TopicKind
from console.gateway.kinds import topic_kind

QUEUE_NUMS_MAX = 1_024
QUEUE_NUMS_DEFAULT = 8

PERMISSIONS = [
    (6, _("Read and write")),
    (4, _("Read only: messages from producers are rejected")),
    (2, _("Write only: consumers receive nothing")),
]


class TopicForm(ConfigForm[TopicConfig]):
    """A topic on some brokers."""

    name_field = "topic"
    name_length_max = names.TOPIC_LENGTH_MAX
    name_missing = _("Enter a topic name.")
    name_in_use = _("A topic with this name already exists.")

    topic = forms.CharField(
        label=_("Name"),
        max_length=names.RETRY_TOPIC_LENGTH_MAX,
        help_text=_(
            "Letters, digits and % | - _ only, at most 127 characters. The name can't be "
            "changed later."
        ),
        widget=forms.TextInput(
            attrs={"autocomplete": "off", "spellcheck": "false", "placeholder": "OrderEvents"}
        ),
    )
    write_queue_nums = forms.IntegerField(
        label=_("Write queues"),
        min_value=1,
        max_value=QUEUE_NUMS_MAX,
        initial=QUEUE_NUMS_DEFAULT,
        help_text=_("Per broker. More queues allow more consumers of a group to work in parallel."),
    )
    read_queue_nums = forms.IntegerField(
        label=_("Read queues"),
        min_value=1,
        max_value=QUEUE_NUMS_MAX,
        initial=QUEUE_NUMS_DEFAULT,
        help_text=_(
            "Use the same number as write queues. To shrink the topic, reduce the write queues "
            "first."
        ),
    )
    perm = forms.TypedChoiceField(label=_("Permission"), choices=PERMISSIONS, coerce=int, initial=6)
    order = forms.BooleanField(
        label=_("Ordered topic"),
        required=False,
        help_text=_("A hint for clients. Ordering itself comes from sending to one queue."),
    )

    def __init__(self, *args: Any, original: TopicConfig | None = None, **kwargs: Any) -> None:
        super().__init__(*args, original=original, **kwargs)
        if original is not None:
            if original.perm not in dict(PERMISSIONS):
                perm = self.fields["perm"]
                assert isinstance(perm, forms.TypedChoiceField)
                perm.choices = [(original.perm, _("Keep current value")), *PERMISSIONS]
            self.initial.update(
                topic=original.topic,
                write_queue_nums=original.write_queue_nums,
                read_queue_nums=original.read_queue_nums,
                perm=original.perm,
                order=original.order,
            )

    def reserved(self, name: str) -> str | None:
        if topic_kind(name) is not TopicKind.NORMAL:
            return gettext("This name is reserved for internal broker topics.")
        return None

    def clean_topic(self) -> str:
        return self.clean_name()

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        write, read = cleaned.get("write_queue_nums"), cleaned.get("read_queue_nums")
        if self.original is None and write is not None and read is not None and read < write:
            self.add_error(
                "read_queue_nums",
                gettext(
                    "With fewer read queues than write queues, messages in the last queues are "
                    "never read."
                ),
            )
        return cleaned

    def config(self) -> TopicConfig:
        data = self.cleaned_data
        original = self.original
        return TopicConfig(
            topic=data["topic"],
            read_queue_nums=data["read_queue_nums"],
            write_queue_nums=data["write_queue_nums"],
            perm=data["perm"],
            order=data["order"],
            topic_sys_flag=original.topic_sys_flag if original else 0,
            topic_filter_type=original.topic_filter_type if original else "SINGLE_TAG",
        )
