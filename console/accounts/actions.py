"""What a person may do, action by action: the words that roles are made of."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from broker_core.message.names import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX

OF_GROUPS = (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)


class Action(models.TextChoices):
    """What a role may allow; each but the last is about a topic or about a group."""

    SEE = "message.see", _("See messages: keys, tags, properties")
    READ = "message.read", _("Read bodies, and search in them")
    EXPORT = "message.export", _("Export messages")
    UNMASK = "message.unmask", _("Unmask a message; each time the audit says so")
    SEND = "message.send", _("Send messages")
    TOPIC = "topic.change", _("Make, change, purge and delete topics")
    GROUP = "group.change", _("Make, change and delete groups")
    OFFSET = "offset.reset", _("Reset offsets")
    REPLAY = "dead-letter.replay", _("Replay and discard dead letters, hand a message to a member")
    MEMBER = "member.ask", _("Ask members how they are, with their threads")
    DISCONNECT = "client.disconnect", _("Disconnect clients, which come back by themselves")
    OPERATE = "console.operate", _("Set marks, silence alerts, run reports and keep schedules")


ABOUT_GROUPS = frozenset(
    {Action.GROUP, Action.OFFSET, Action.REPLAY, Action.MEMBER, Action.DISCONNECT}
)
ABOUT_NOTHING = frozenset({Action.OPERATE})
ABOUT_TOPICS = frozenset(Action) - ABOUT_GROUPS - ABOUT_NOTHING


def group_of(topic: str) -> str | None:
    """Return whose retries or dead letters a topic holds, None for any other topic."""
    for prefix in OF_GROUPS:
        if topic.startswith(prefix):
            return topic.removeprefix(prefix)
    return None
