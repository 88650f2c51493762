"""Changes that can be undone: their pages, and the notice with the undo button."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import messages
from django.urls import reverse

from console.people.audit.models import Entry

if TYPE_CHECKING:
    from django.http import HttpRequest

# Each page takes an entry's number: GET previews undoing the change, POST undoes it.
PAGES = {
    "topic.create": "topics:undo",
    "topic.update": "topics:undo",
    "topic.delete": "topics:undo",
    "topic.purge": "topics:undo",
    "topic.label": "topics:label-undo",
    "group.create": "groups:undo",
    "group.update": "groups:undo",
    "group.delete": "groups:undo",
    "group.label": "groups:label-undo",
    "offset.reset": "offsets:restore",
    "broker.configure": "brokers:undo",
    "broker-account.create": "broker_accounts:undo",
    "broker-account.update": "broker_accounts:undo",
    "broker-white.update": "broker_accounts:undo",
    "config.apply": "files:undo",
    "name-server.put": "brokers:kv-undo",
    "name-server.delete": "brokers:kv-undo",
    "name-server.add-write": "brokers:write-undo",
    "name-server.wipe-write": "brokers:write-undo",
}
# A failed change may have reached some name servers.
HALF_DONE = ("name-server.add-write", "name-server.wipe-write")


def undo_address(entry: Entry) -> str:
    """Return the page that undoes an entry's change, or ""."""
    page = PAGES.get(entry.action)
    # A group may have offsets and no configuration.
    is_bare = entry.action == "group.delete" and not (entry.before or {}).get("configs")
    # A failed purge may have deleted a topic without creating it again; a completed one is final.
    wanted = [Entry.Outcome.FAILED if entry.action == "topic.purge" else Entry.Outcome.DONE]
    if entry.action in HALF_DONE:
        wanted.append(Entry.Outcome.FAILED)
    if page is None or is_bare or entry.outcome not in wanted:
        return ""
    return reverse(page, args=[entry.pk])


def offer_undo(request: HttpRequest, sentence: str, entry: Entry) -> None:
    """Show a notice about a change on the next page, with a button that undoes it."""
    messages.success(request, sentence, extra_tags=undo_address(entry))
