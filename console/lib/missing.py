"""MissingError: renders a page about something that doesn't exist."""

from __future__ import annotations

from django.http import Http404


class MissingError(Http404):
    """It doesn't exist; the text is a sentence for people, with a next step."""
