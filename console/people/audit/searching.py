"""Search the audit log."""

from __future__ import annotations

from django.db.models import Q, QuerySet

from console.people.audit.models import Entry


def narrowed(query: str, action: str) -> QuerySet[Entry]:
    """Return the entries that match a filter."""
    entries = Entry.objects.all()
    if query:
        words = Q(subject__icontains=query) | Q(actor_name__icontains=query)
        entries = entries.filter(words | Q(request_id=query))
    return entries.filter(action=action) if action else entries
