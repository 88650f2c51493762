"""The writer of audit entries."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from console.audit.models import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from django.http import HttpRequest

REMARK_CHARACTERS_MAX = 2_000


@contextmanager
def change(
    request: HttpRequest, action: str, subject: str, *, before: Any = None, after: Any = None
) -> Iterator[Entry]:
    """Record what the block does: the entry stands before it runs and carries its outcome after.

    Numbers of 64 bits belong into `before`, `after` as strings, as everywhere in JSON.
    """
    user = request.user
    entry = Entry.objects.create(
        actor=user if user.is_authenticated else None,
        actor_name=user.get_username(),
        address=request.META.get("REMOTE_ADDR", ""),
        action=action,
        subject=subject,
        before=before,
        after=after,
    )
    try:
        yield entry
    except Exception as error:
        entry.outcome = Entry.Outcome.FAILED
        entry.remark = str(error)[:REMARK_CHARACTERS_MAX]
        entry.save(update_fields=["outcome", "remark"])
        raise
    entry.outcome = Entry.Outcome.DONE
    entry.save(update_fields=["outcome", "after", "remark"])
