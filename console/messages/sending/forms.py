"""The message form."""

from __future__ import annotations

import base64
import binascii
import math
import random
from typing import TYPE_CHECKING, Any

from django import forms
from django.utils.translation import gettext, gettext_lazy as _

from broker_core.message import names
from broker_core.message.tags import unsigned_hash
from console.gateway.answers import MessageQueue, TopicKind
from console.gateway.outgoing import NewMessage
from console.lib.stored import BrokerQueue
from console.messages.sending.template import filled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.gateway.answers import Topic

BODY_CHARACTERS_MAX = 1 << 20
ALL_BYTES_MAX = 32 << 20
REPEATS_MAX = 500
PROPERTIES_CHARACTERS_MAX = 16_384
PROPERTIES_BYTES_MAX = 32_767
DELAY_LEVEL_MAX = 18
TEXT, BASE64 = "text", "base64"
SEPARATORS = "\x01\x02"
BLANKS = " \t\r\n"
RESERVED = frozenset(
    value
    for name, value in vars(names).items()
    if name.startswith("PROPERTY_") and isinstance(value, str)
)
"""Properties with their own form field, or set by brokers."""
JAVA_SIGN = 1 << 31
NO_BREAKS = {"autocomplete": "off", "spellcheck": "false"}


class Words(forms.CharField):
    """Text without surrounding spaces. Django's strip would also remove control characters."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(strip=False, **kwargs)

    def to_python(self, value: object) -> str:
        return str(super().to_python(value)).strip(BLANKS)


class SendForm(forms.Form):
    """A message, or many messages from one template."""

    topic = forms.CharField(
        label=_("Topic"),
        max_length=names.TOPIC_LENGTH_MAX,
        widget=forms.TextInput(attrs={**NO_BREAKS, "list": "topic-names"}),
    )
    body = forms.CharField(
        label=_("Body"),
        required=False,
        strip=False,
        max_length=BODY_CHARACTERS_MAX,
        widget=forms.Textarea(attrs={"rows": 10, "class": "mono", "spellcheck": "false"}),
        help_text=_(
            "In the body, key, properties and ordering key, ${n} is the message number, "
            "${uuid} a unique ID and ${now} the time in ms."
        ),
    )
    encoding = forms.ChoiceField(
        label=_("Body type"), choices=[(TEXT, _("text")), (BASE64, _("binary, as Base64"))]
    )
    tag = Words(
        label=_("Tag"), required=False, max_length=255, widget=forms.TextInput(attrs=NO_BREAKS)
    )
    keys = Words(
        label=_("Keys"),
        required=False,
        max_length=1_024,
        help_text=_("Words that you can search for to find the message."),
        widget=forms.TextInput(attrs=NO_BREAKS),
    )
    properties = Words(
        label=_("Properties"),
        required=False,
        max_length=PROPERTIES_CHARACTERS_MAX,
        help_text=_("One per line: name=value."),
        widget=forms.Textarea(attrs={"rows": 4, "class": "mono", "spellcheck": "false"}),
    )
    delay_level = forms.IntegerField(
        label=_("Delay level"),
        min_value=0,
        max_value=DELAY_LEVEL_MAX,
        initial=0,
        help_text=_(
            "0 means no delay. By default, 1 is 1 s, 3 is 10 s, 5 is 1 min, 14 is 10 min and "
            "18 is 2 h."
        ),
    )
    order_key = forms.CharField(
        label=_("Ordering key"),
        required=False,
        max_length=255,
        help_text=_(
            "Messages with the same ordering key go to the same queue, chosen as Java clients do."
        ),
        widget=forms.TextInput(attrs=NO_BREAKS),
    )
    queue = forms.CharField(
        label=_("Queue"),
        required=False,
        max_length=255,
        help_text=_("For example broker-a:0. Leave empty to use the queues in turn."),
        widget=forms.TextInput(attrs=NO_BREAKS),
    )
    count = forms.IntegerField(
        label=_("Number of messages"), min_value=1, max_value=REPEATS_MAX, initial=1, required=False
    )
    is_half = forms.BooleanField(
        label=_("Send as a transaction and commit or roll it back later"), required=False
    )

    def __init__(self, *args: Any, topics: Mapping[str, Topic], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._topics = topics

    def clean_topic(self) -> str:
        name = str(self.cleaned_data["topic"])
        topic = self._topics.get(name)
        if topic is None:
            raise forms.ValidationError(
                gettext("No broker has this topic. Names are case-sensitive.")
            )
        if topic.kind is not TopicKind.NORMAL:
            raise forms.ValidationError(
                gettext("This topic is reserved for internal use by brokers.")
            )
        if not queues_of(topic):
            raise forms.ValidationError(
                gettext("The topic is read-only and doesn't accept messages.")
            )
        return name

    def clean_count(self) -> int:
        return int(self.cleaned_data.get("count") or 1)

    def clean_properties(self) -> str:
        text = str(self.cleaned_data["properties"])
        for name, value in pairs_of(text):
            if not name or not value:
                raise forms.ValidationError(gettext("Enter each line as name=value."))
            if name in RESERVED:
                raise forms.ValidationError(
                    gettext("%(name)s has its own field or is set by the broker.") % {"name": name}
                )
        return text

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        for name in ("tag", "keys", "properties", "order_key"):
            if any(each in SEPARATORS for each in str(cleaned.get(name, ""))):
                self.add_error(
                    name,
                    gettext(
                        "Remove the control characters U+0001 and U+0002. They separate properties."
                    ),
                )
        if cleaned.get("encoding") == BASE64:
            try:
                base64.b64decode(str(cleaned.get("body", "")), validate=True)
            except (binascii.Error, ValueError):
                self.add_error("body", gettext("This isn't valid Base64."))
        if cleaned.get("is_half"):
            if cleaned.get("delay_level"):
                self.add_error("delay_level", gettext("A transactional message can't be delayed."))
            if (cleaned.get("count") or 1) > 1:
                self.add_error(
                    "count", gettext("Only one message at a time can be sent as a transaction.")
                )
        if cleaned.get("queue") and cleaned.get("order_key"):
            self.add_error(
                "queue",
                gettext("The ordering key already determines the queue. Leave the queue empty."),
            )
        if len(str(cleaned.get("body", ""))) * (cleaned.get("count") or 1) > ALL_BYTES_MAX:
            self.add_error("count", gettext("The messages would exceed 32 MiB in total."))
        topic = self._topics.get(str(cleaned.get("topic", "")))
        if cleaned.get("queue") and topic is not None and self._queue(topic) is None:
            self.add_error("queue", gettext("The topic has no write queue with this number."))
        if not self.errors:
            self._check_sizes()
        return cleaned

    def _check_sizes(self) -> None:
        size = sum(len(f"{name}{value}".encode()) + 2 for name, value in self._carried(1).items())
        if size > PROPERTIES_BYTES_MAX:
            self.add_error("properties", gettext("The properties can't exceed 32 KiB in total."))

    def messages(self) -> list[NewMessage]:
        """Return the messages to send, in order."""
        data = self.cleaned_data
        queues = queues_of(self._topics[data["topic"]])
        first = random.randrange(len(queues))
        return [
            NewMessage(
                self._place(queues, first, number),
                self._body(number),
                self._carried(number),
                is_half=data["is_half"],
            )
            for number in range(1, data["count"] + 1)
        ]

    def _place(self, queues: list[MessageQueue], first: int, number: int) -> MessageQueue:
        data = self.cleaned_data
        if data["order_key"]:
            return queues[chosen(filled(data["order_key"], number), len(queues))]
        given = self._queue(self._topics[data["topic"]]) if data["queue"] else None
        return given or queues[(first + number) % len(queues)]

    def _queue(self, topic: Topic) -> MessageQueue | None:
        """Return the selected queue, if the topic has it."""
        try:
            asked = BrokerQueue.parse(str(self.cleaned_data["queue"]).strip())
        except ValueError:
            return None
        return next(
            (
                each
                for each in queues_of(topic)
                if (each.broker_name, each.queue_id) == (asked.broker_name, asked.queue_id)
            ),
            None,
        )

    def _body(self, number: int) -> bytes:
        text = str(self.cleaned_data["body"])
        if self.cleaned_data["encoding"] == BASE64:
            return base64.b64decode(text, validate=True)
        return filled(text.replace("\r\n", "\n"), number).encode()

    def _carried(self, number: int) -> dict[str, str]:
        data = self.cleaned_data
        carried = {
            filled(name, number): filled(value or "", number)
            for name, value in pairs_of(data["properties"])
        }
        if data["keys"]:
            carried[names.PROPERTY_KEYS] = filled(data["keys"], number)
        if data["tag"]:
            carried[names.PROPERTY_TAGS] = data["tag"]
        if data["delay_level"]:
            carried[names.PROPERTY_DELAY_TIME_LEVEL] = str(data["delay_level"])
        return carried


def pairs_of(text: str) -> list[tuple[str, str | None]]:
    """Return each line's name and value; the value is None without `=`."""
    found = []
    # Not splitlines: other control characters may be part of a value.
    for line in text.split("\n"):
        name, equals, value = line.partition("=")
        if line.strip(BLANKS):
            found.append((name.strip(BLANKS), value.strip(BLANKS) if equals else None))
    return found


def queues_of(topic: Topic) -> list[MessageQueue]:
    """Return the writable queues, in client order."""
    return [
        MessageQueue(topic.name, broker_name, queue_id)
        for broker_name, config in sorted(topic.configs.items())
        if config.is_writable
        for queue_id in range(config.write_queue_nums)
    ]


def chosen(order_key: str, count: int) -> int:
    """Return the queue that Java's SelectMessageQueueByHash selects for a text."""
    value = unsigned_hash(order_key)
    signed = value - 2 * JAVA_SIGN if value >= JAVA_SIGN else value
    return abs(int(math.fmod(signed, count)))
