"""The cluster that pages are measured on, and the time limits for them."""

from __future__ import annotations

TOPICS, GROUPS, CONNECTIONS = 5_000, 2_000, 200
PAGE_MS_MAX, GROUPS_MS_MAX = 300, 500
"""Server time; the second is for the list of groups, which shows each group's read mode."""
FILE_MS_MAX = 1_000
"""For a CSV file with all topics or groups."""
