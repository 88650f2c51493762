"""The JSON files of a broker's configuration: which there are, and their text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from broker_core.protocol import java_json

INT64_MAX = (1 << 63) - 1


class ConfigFile(StrEnum):
    """A file of a broker's `config` directory, by its name."""

    TOPICS = "topics.json"
    GROUPS = "subscriptionGroup.json"
    OFFSETS = "consumerOffset.json"
    DELAYS = "delayOffset.json"
    FILTERS = "consumerFilter.json"

    @property
    def table(self) -> str:
        """The key of the file's table."""
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
    """The expression by which a group reads a topic."""

    group: str
    topic: str
    expression_type: str
    expression: str


def parse(text: str) -> Any:
    """Return what a file's text says, in fastjson's dialect or in plain JSON; keys are text.

    Raises:
        ValueError: it is neither.
    """
    return java_json.decode(text)


def text_of(file: ConfigFile, document: dict[str, Any]) -> str:
    """Return a document as its broker writes it to the file."""
    shown = dict(document)
    table = shown.get(file.table) or {}
    if file is ConfigFile.OFFSETS:
        table = {key: with_numbers(queues) for key, queues in table.items()}
    elif file is ConfigFile.DELAYS:
        table = with_numbers(table)
    shown[file.table] = table
    return java_json.encode_pretty(shown).decode()


def with_numbers(table: dict[str, Any]) -> dict[Any, Any]:
    """Return a table whose keys are numbers, as the files of offsets have them."""
    return {int(key) if key.isdecimal() else key: value for key, value in table.items()}
