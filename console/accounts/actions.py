"""The actions that roles allow."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from broker_core.message.names import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX

OF_GROUPS = (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)


class Action(models.TextChoices):
    """An action that a role can allow; all but the last apply to a topic or a group."""

    SEE = "message.see", _("View messages: keys, tags, properties")
    READ = "message.read", _("Read and search message bodies")
    EXPORT = "message.export", _("Export messages")
    UNMASK = "message.unmask", _("Unmask a message; recorded in the audit log each time")
    SEND = "message.send", _("Send messages")
    TOPIC = "topic.change", _("Create, change, purge and delete topics")
    GROUP = "group.change", _("Create, change and delete groups")
    OFFSET = "offset.reset", _("Reset offsets")
    REPLAY = (
        "dead-letter.replay",
        _("Replay and discard dead letters, redeliver a message to a consumer"),
    )
    MEMBER = "member.ask", _("Get consumer status and thread dumps")
    DISCONNECT = "client.disconnect", _("Disconnect clients, which reconnect automatically")
    OPERATE = "console.operate", _("Add marks, silence alerts, run and schedule reports")


ABOUT_GROUPS = frozenset(
    {Action.GROUP, Action.OFFSET, Action.REPLAY, Action.MEMBER, Action.DISCONNECT}
)
ABOUT_NOTHING = frozenset({Action.OPERATE})
ABOUT_TOPICS = frozenset(Action) - ABOUT_GROUPS - ABOUT_NOTHING


def group_of(topic: str) -> str | None:
    """Return the group of a retry or dead-letter topic, or None for any other topic."""
    for prefix in OF_GROUPS:
        if topic.startswith(prefix):
            return topic.removeprefix(prefix)
    return None
