"""Messages that no consumer can read because topics.json doesn't have their topic.

A lost topics.json leaves such messages behind.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from broker_core.metadata.topics import Topics
    from broker_core.store.message_store import MessageStore

logger = logging.getLogger(__name__)

LOGGED_MAX = 10
LISTED_MAX = 100


class LostTopic(NamedTuple):
    """The messages of a missing topic, and the number of their queues."""

    topic: str
    queue_nums: int
    messages: int


def unreachable(topics: Topics, store: MessageStore) -> list[LostTopic]:
    """Return all missing topics with messages, sorted by message count, descending."""
    found = []
    for topic in set(store.topics()).difference(topics.table):
        if topics.is_system(topic):
            continue  # the broker reads its own topics
        queue_ids = store.queue_ids(topic)
        messages = sum(_messages(store, topic, queue_id) for queue_id in queue_ids)
        if messages:
            found.append(LostTopic(topic, len(queue_ids), messages))
    return sorted(found, key=lambda each: (-each.messages, each.topic))


def warn_of_unreachable(topics: Topics, store: MessageStore) -> None:
    """Log the missing topics, and how to restore them."""
    found = unreachable(topics, store)
    if not found:
        return
    names = ", ".join(
        f"{each.topic} (messages={each.messages} queues={each.queue_nums})"
        for each in found[:LOGGED_MAX]
    )
    more = f" and {len(found) - LOGGED_MAX} more topics" if len(found) > LOGGED_MAX else ""
    what = "is missing" if topics.is_file_missing else "lacks topics"
    logger.warning(
        "%s %s, so no consumer can read the messages of %s%s. Stop the broker and restore the file "
        "from a backup, or run: %s",
        topics.path,
        what,
        names,
        more,
        topics.rebuild_command,
    )


def runtime_info(topics: Topics, store: MessageStore) -> dict[str, str]:
    """Return the rows of GET_BROKER_RUNTIME_INFO: a number, and the first topics as JSON."""
    found = unreachable(topics, store)
    listed = {
        each.topic: {"queueNums": each.queue_nums, "messages": each.messages}
        for each in found[:LISTED_MAX]
    }
    return {
        "unreachableMessages": str(sum(each.messages for each in found)),
        "unreachableTopics": json.dumps(listed, separators=(",", ":")),
    }


def _messages(store: MessageStore, topic: str, queue_id: int) -> int:
    first = store.min_offset_in_queue(topic, queue_id)
    return max(0, store.max_offset_in_queue(topic, queue_id) - first)
