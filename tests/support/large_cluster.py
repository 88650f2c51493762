"""The cluster that pages are measured on, and what they may take there."""

from __future__ import annotations

TOPICS, GROUPS, CONNECTIONS = 5_000, 2_000, 200
PAGE_MS_MAX, GROUPS_MS_MAX = 300, 500
"""Of the server's time; the second for the list of groups, which says how each of them reads."""
FILE_MS_MAX = 1_000
"""Of a file (CSV) with all topics or groups, which is no page."""
