"""The form of a topic's configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from broker_core.message import names
from console.gateway.answers import TopicConfig, TopicKind
from console.gateway.kinds import topic_kind

if TYPE_CHECKING:
    from collections.abc import Iterable

QUEUE_NUMS_MAX = 1_024
QUEUE_NUMS_DEFAULT = 8

PERMISSIONS = [
    (6, _("Read and write")),
    (4, _("Read only: producers are refused")),
    (2, _("Write only: consumers get nothing")),
]


def name_problem(topic: str) -> str | None:
    """Return what is wrong with the name of a topic to be made, in one sentence for people."""
    if not topic:
        return str(_("Give the topic a name."))
    if not names.is_legal_name(topic):
        return str(_("A name consists of letters, digits and the characters % | - _ only."))
    if len(topic) > names.TOPIC_LENGTH_MAX:
        limit = {"max": names.TOPIC_LENGTH_MAX, "length": len(topic)}
        return str(_("A name has at most %(max)d characters; this one has %(length)d.") % limit)
    if topic_kind(topic) is not TopicKind.NORMAL:
        return str(_("This name is reserved for the broker's own topics."))
    return None


class TopicForm(forms.Form):
    """A topic on some brokers; `original` makes it an edit, whose name cannot change."""

    topic = forms.CharField(
        label=_("Name"),
        max_length=names.RETRY_TOPIC_LENGTH_MAX,
        help_text=_("Letters, digits and % | - _, at most 127 characters; cannot change later."),
        widget=forms.TextInput(
            attrs={"autocomplete": "off", "spellcheck": "false", "placeholder": "OrderEvents"}
        ),
    )
    broker_names = forms.MultipleChoiceField(
        label=_("Brokers"), widget=forms.CheckboxSelectMultiple
    )
    write_queue_nums = forms.IntegerField(
        label=_("Write queues"),
        min_value=1,
        max_value=QUEUE_NUMS_MAX,
        initial=QUEUE_NUMS_DEFAULT,
        help_text=_("On each broker. More queues let more consumers of a group work side by side."),
    )
    read_queue_nums = forms.IntegerField(
        label=_("Read queues"),
        min_value=1,
        max_value=QUEUE_NUMS_MAX,
        initial=QUEUE_NUMS_DEFAULT,
        help_text=_("Keep it equal to the write queues; to shrink, lower the write queues first."),
    )
    perm = forms.TypedChoiceField(label=_("Permission"), choices=PERMISSIONS, coerce=int, initial=6)
    order = forms.BooleanField(
        label=_("Ordered topic"),
        required=False,
        help_text=_("A note for clients; order itself comes from sending to one queue."),
    )

    def __init__(
        self,
        *args: Any,
        broker_names: Iterable[str],
        taken: Iterable[str] = (),
        original: TopicConfig | None = None,
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
            self.fields["topic"].disabled = True
            self.fields["topic"].help_text = ""
            if original.perm not in dict(PERMISSIONS):
                perm = self.fields["perm"]
                assert isinstance(perm, forms.TypedChoiceField)
                perm.choices = [(original.perm, _("As it is")), *PERMISSIONS]
            self.initial.update(
                topic=original.topic,
                write_queue_nums=original.write_queue_nums,
                read_queue_nums=original.read_queue_nums,
                perm=original.perm,
                order=original.order,
            )

    def clean_topic(self) -> str:
        topic = str(self.cleaned_data["topic"])
        if self._original is not None:
            return self._original.topic
        problem = name_problem(topic)
        if problem is not None:
            raise ValidationError(problem)
        if topic in self._taken:
            raise ValidationError(_("A topic of this name exists."))
        return topic

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        write, read = cleaned.get("write_queue_nums"), cleaned.get("read_queue_nums")
        if self._original is None and write is not None and read is not None and read < write:
            self.add_error(
                "read_queue_nums",
                _("With fewer read than write queues, the last ones are never read."),
            )
        return cleaned

    def config(self) -> TopicConfig:
        """Return what the form says; only after `is_valid`."""
        data = self.cleaned_data
        original = self._original
        return TopicConfig(
            topic=data["topic"],
            read_queue_nums=data["read_queue_nums"],
            write_queue_nums=data["write_queue_nums"],
            perm=data["perm"],
            order=data["order"],
            topic_sys_flag=original.topic_sys_flag if original else 0,
            topic_filter_type=original.topic_filter_type if original else "SINGLE_TAG",
        )
