"""Messages: find one, and show its masked values, for the pages and the API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

from console.gateway.access import gateway
from console.gateway.errors import NotFoundError
from console.lib.missing import MissingError
from console.people.audit.record import change
from console.people.masking.access import unmasked

if TYPE_CHECKING:
    from django.http import HttpRequest

    from console.lib.stored import BrokerQueue, StoredMessage


def unmasked_message(
    request: HttpRequest, topic: str, queue: BrokerQueue, offset: int
) -> StoredMessage:
    """Return a message with its masked values, after recording who sees them."""
    rules = list(stored_at(topic, queue, offset).masked_by)
    after = {"queue": str(queue), "offset": str(offset), "rules": rules}
    with change(request, "message.unmask", topic, after=after), unmasked():
        return stored_at(topic, queue, offset)


def stored_at(topic: str, queue: BrokerQueue, offset: int) -> StoredMessage:
    """Return the message at a location.

    Raises:
        MissingError: the message doesn't exist or has been deleted.
    """
    try:
        found = gateway().browse.at(topic, queue, offset)
    except NotFoundError:
        found = None
    if found is None:
        raise MissingError(
            _(
                "Queue %(queue)s of %(topic)s has no message at offset %(offset)d. The message has "
                "expired or hasn't been stored yet."
            )
            % {"queue": queue, "topic": topic, "offset": offset}
        )
    return found
