"""Check the configuration files, which are in fastjson's dialect."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from broker_core.verify.report import Report

CONFIG_NAMES = (
    "topics.json",
    "subscriptionGroup.json",
    "consumerOffset.json",
    "delayOffset.json",
    "consumerFilter.json",
)
_NUMBER_KEY = re.compile(r'"(?:\\.|[^"\\])*"|([{,]\s*)(-?\d+)(\s*:)')


class KnownTopics(NamedTuple):
    """The existing and the deleted topics."""

    names: set[str] | None
    """None if topics.json is missing or damaged."""
    deleted_before: dict[str, int]
    """Topic -> commit_log_offset below which its records belong to a deleted topic; only Trebuchet
    writes it.
    """


def known_topics(root: Path) -> KnownTopics:
    """Read topics.json and deletedTopics.json, as far as they are readable."""
    names: set[str] | None = None
    deleted: dict[str, int] = {}
    unreadable = (OSError, ValueError, KeyError, TypeError)
    with suppress(*unreadable):
        text = (root / "config" / "topics.json").read_text("utf-8")
        names = set(json.loads(with_quoted_keys(text))["topicConfigTable"])
    with suppress(*unreadable):
        text = (root / "deletedTopics.json").read_text("utf-8")
        deleted = dict(json.loads(text)["deletedBefore"])
    return KnownTopics(names, deleted)


def check_documents(root: Path, ends: Mapping[tuple[str, int], int], report: Report) -> None:
    """Check that all documents are readable and no consumer offset is past its queue's end."""
    read: dict[str, Any] = {}
    for name in CONFIG_NAMES:
        path = root / "config" / name
        if not path.exists():
            continue
        try:
            read[name] = json.loads(with_quoted_keys(path.read_text("utf-8")))
            report.configuration[name] = "read"
        except ValueError as error:
            report.configuration[name] = "damaged"
            report.add(path, f"cannot be read: {error}")
    for key, offsets in read.get("consumerOffset.json", {}).get("offsetTable", {}).items():
        topic = key.partition("@")[0]
        for queue_id, offset in offsets.items():
            end = ends.get((topic, int(queue_id)))
            if end is not None and offset > end and not report.clean_exit:
                report.ahead["offsets"] += 1
            elif end is not None and offset > end:
                report.add(
                    root / "config" / "consumerOffset.json",
                    f"the offset of {key} in queue {queue_id} is {offset}, the queue ends at {end}",
                )


def with_quoted_keys(text: str) -> str:
    """Return fastjson's text as JSON, with quotes around the keys that are numbers."""
    return _NUMBER_KEY.sub(
        lambda found: f'{found[1]}"{found[2]}"{found[3]}' if found[2] else found[0], text
    )
