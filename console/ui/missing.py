"""MissingError: the page that says what there is none of."""

from __future__ import annotations

from django.http import Http404


class MissingError(Http404):
    """No such thing; the text is a sentence for people, with what to look at."""
