"""A broker's JSON configuration files: their names and format."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from broker_core.protocol import java_json

INT64_MAX = (1 << 63) - 1


class ConfigFile(StrEnum):
    """A file in a broker's `config` directory, by name."""

    TOPICS = "topics.json"
    GROUPS = "subscriptionGroup.json"
    OFFSETS = "consumerOffset.json"
    DELAYS = "delayOffset.json"
    FILTERS = "consumerFilter.json"

    @property
    def table(self) -> str:
        """The key of the table within the file."""
        return TABLES[self]


TABLES = {
    ConfigFile.TOPICS: "topicConfigTable",
    ConfigFile.GROUPS: "subscriptionGroupTable",
    ConfigFile.OFFSETS: "offsetTable",
    ConfigFile.DELAYS: "offsetTable",
    ConfigFile.FILTERS: "filterDataByTopic",
}


@dataclass(frozen=True, slots=True)
class GroupFilter:
    """The filter expression of a group's subscription to a topic."""

    group: str
    topic: str
    expression_type: str
    expression: str


def parse(text: str) -> Any:
    """Parse a file in plain JSON or fastjson's dialect; keys are text.

    Raises:
        ValueError: the text is neither.
    """
    return java_json.decode(text)


def text_of(file: ConfigFile, document: dict[str, Any]) -> str:
    """Return a document in the format the broker writes."""
    shown = dict(document)
    table = shown.get(file.table) or {}
    if file is ConfigFile.OFFSETS:
        table = {key: with_numbers(queues) for key, queues in table.items()}
    elif file is ConfigFile.DELAYS:
        table = with_numbers(table)
    shown[file.table] = table
    return java_json.encode_pretty(shown).decode()


def with_numbers(table: dict[str, Any]) -> dict[Any, Any]:
    """Return a table with integer keys, as in the offset files."""
    return {int(key) if key.isdecimal() else key: value for key, value in table.items()}
