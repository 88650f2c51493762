"""Queries that other pages link to, for a topic's messages in a time range."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

from console.lib.moment import now_ms
from console.observe.history.range import ends_problem, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME_CHARACTERS_MAX = 255
KEY_CHARACTERS_MAX = 512
MS_MAX = 253_402_300_799_999
ROWS = 1_000


def problem_of(asked: Mapping[str, str]) -> str:
    """Return why a URL's time range is impossible, or "" if it is possible or unused."""
    low, high = (asked.get(name, "").strip() for name in ("from", "to"))
    if not asked.get("topic", "").strip() or not (low or high):
        return ""
    problem = ends_problem(low, high, now_ms())
    if not problem and int(high) > MS_MAX:
        return _("The time range ends after the year 9999. Choose an earlier end.")
    return problem


def query_of(asked: Mapping[str, str]) -> str:
    """Return the query for a URL's parameters, or "" without a topic and time."""
    topic = asked.get("topic", "").strip()[:NAME_CHARACTERS_MAX]
    low, high = (whole(asked.get(name, "").strip()) for name in ("from", "to"))
    if not topic or low is None or high is None or not low < high <= MS_MAX:
        return ""
    key = asked.get("key", "")[:KEY_CHARACTERS_MAX]
    first, last = moment(low), moment(high)
    return (
        "SELECT store_timestamp, queue_id, queue_offset, tags, keys, uniq_key, store_size\n"
        "FROM bronze.messages\n"
        f"WHERE day BETWEEN DATE '{first:%Y-%m-%d}' AND DATE '{last:%Y-%m-%d}'\n"
        f"    AND topic = {quoted(topic)}\n"
        f"    AND store_timestamp >= TIMESTAMPTZ '{first:%Y-%m-%d %H:%M:%S.%f}+00'\n"
        f"    AND store_timestamp < TIMESTAMPTZ '{last:%Y-%m-%d %H:%M:%S.%f}+00'\n"
        + (f"    AND list_contains(keys, {quoted(key)})\n" if key else "")
        + f"ORDER BY store_timestamp\nLIMIT {ROWS}"
    )


def moment(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
