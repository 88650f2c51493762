"""Objects for the pictures besides the demo's traffic; runs in a console process."""

from __future__ import annotations

import json
from typing import NamedTuple
from urllib.parse import urlencode

from django.urls import reverse

from console.demo.traffic import CONSUMER_GROUP
from console.lib.moment import now_ms
from console.observe.alerts.models import Channel, Rule
from console.observe.marks.models import Mark

BROKER_NAME, TOPIC, QUEUE_ID = "broker-a", "orders", 2
BACK = 40
"""This many messages before the last read one, so that all its stages are past."""


class Scene(NamedTuple):
    """The addresses of pages about existing objects."""

    message: str
    family: str
    dead_letters: str
    offsets: str
    configuration: str
    rule: str


def prepare() -> None:
    """Create a channel, a rule and a mark, as a new user would."""
    channel = Channel.objects.create(
        name="on call", kind="slack", url="https://hooks.slack.example/services/x"
    )
    rule = Rule.objects.create(
        name="Billing has new dead letters",
        source="verdict",
        verdicts=["dead-letters"],
        least="warn",
        name_pattern="billing*",
    )
    rule.channels.add(channel)
    Mark.objects.create(at_ms=now_ms(), text="shop 1.4.2", by="ci", made_ms=now_ms())


def scene(group: str, consumer_offset: int) -> str:
    """Return the addresses as JSON, for the demo group's current offset in the queue."""
    assert consumer_offset > BACK, "the demo has sent too few messages"
    place = [BROKER_NAME, QUEUE_ID, consumer_offset - BACK, TOPIC]
    query = {"group": CONSUMER_GROUP, "topic": TOPIC, "mode": "shift", "shift": -50}
    return json.dumps(
        Scene(
            message=reverse("browse:message", args=place),
            family=reverse("family:message", args=place),
            dead_letters=reverse("dead_letters:group", args=[group]),
            offsets=f"{reverse('offsets:preview')}?{urlencode(query)}",
            configuration=reverse("files:edit", args=[BROKER_NAME, "topics.json"]),
            rule=reverse("alerts:rule-edit", args=[Rule.objects.latest("pk").pk]),
        )._asdict()
    )
