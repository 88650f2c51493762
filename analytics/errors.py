"""ReportError: the one sentence a person reads when a report cannot be made."""

from __future__ import annotations


class ReportError(Exception):
    """A report cannot be made; str() is one sentence for people, with what would help."""


class ReportCancelledError(Exception):
    """Somebody asked the run to stop; nothing was published."""
