"""The columns of a table of messages, and where each message has its page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.urls import reverse
from django.utils.translation import gettext_lazy

from console.ui.tables import Column

if TYPE_CHECKING:
    from console.gateway.stored import StoredMessage

NAMES_OFFERED_MAX = 2_000

COLUMNS = (
    Column("stored", gettext_lazy("Stored")),
    Column("queue", gettext_lazy("Queue"), gettext_lazy("offset"), is_fact=True),
    Column("tag", gettext_lazy("Tag")),
    Column("keys", gettext_lazy("Keys"), is_fact=True),
    Column("size", gettext_lazy("Size"), is_number=True),
    Column("producer", gettext_lazy("Producer's address")),
    Column("retries", gettext_lazy("Delivered again"), is_number=True, is_extra=True),
    Column("id", gettext_lazy("Id"), is_extra=True),
)


def message_url(message: StoredMessage) -> str:
    return reverse(
        "browse:message",
        args=[message.broker_name, message.queue_id, message.queue_offset, message.topic],
    )
