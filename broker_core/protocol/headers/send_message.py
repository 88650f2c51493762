"""SendHeader: the ext fields of SEND_MESSAGE_V2, decoded directly into numbers and strings.

Every send has one, so numbers are parsed in the same pass as the JSON: building a dict of strings
first takes twice as long.

Source: common/protocol/header/SendMessageRequestHeaderV2.java (4.9.7; `n` is from 5.x).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from broker_core.protocol.headers import fields
from broker_core.protocol.headers.fields import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LONG_NAMES = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "l": "maxReconsumeTimes",
    "m": "batch",
    "n": "brokerName",
}
"""The long name of each letter."""
SHORT_NAMES = {long: short for short, long in LONG_NAMES.items()}

Int32 = Annotated[int, msgspec.Meta(ge=INT32_MIN, le=INT32_MAX)]
Int64 = Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)]


class SendHeader(
    msgspec.Struct,
    gc=False,
    forbid_unknown_fields=True,
    rename={
        "topic": "b",
        "queue_id": "e",
        "sys_flag": "f",
        "born_timestamp": "g",
        "flag": "h",
        "properties": "i",
        "reconsume_times": "j",
        "batch": "m",
        "producer_group": "a",
        "default_topic": "c",
        "default_topic_queue_nums": "d",
        "unit_mode": "k",
        "max_reconsume_times": "l",
        "broker_name": "n",
    },
):
    """A send's header for the processor; as a mapping it contains the ext fields received.

    A header with any other field, for example a signed one, is decoded as a generic command.
    """

    topic: str
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    batch: str | None = None
    producer_group: str | None = None
    default_topic: str | None = None
    default_topic_queue_nums: Int32 | None = None
    unit_mode: str | None = None
    max_reconsume_times: Int32 | None = None
    broker_name: str | None = None

    @classmethod
    def of(cls, ext_fields: Mapping[str, str]) -> SendHeader:
        """Return the header for ext fields in the short form.

        Raises:
            RequestRefusedError: a mandatory field is missing, or a number is malformed.
        """
        named = {
            LONG_NAMES[letter]: value
            for letter, value in ext_fields.items()
            if letter in LONG_NAMES
        }
        return cls(
            fields.text(named, "topic"),
            fields.int32(named, "queueId"),
            fields.int32(named, "sysFlag"),
            fields.int64(named, "bornTimestamp"),
            fields.int32(named, "flag"),
            named.get("properties"),
            _optional(named, "reconsumeTimes"),
            named.get("batch"),
            named.get("producerGroup"),
            named.get("defaultTopic"),
            _optional(named, "defaultTopicQueueNums"),
            named.get("unitMode"),
            _optional(named, "maxReconsumeTimes"),
            named.get("brokerName"),
        )

    # The mapping interface is for authorization, hooks and logs.

    def ext_fields(self) -> dict[str, str]:
        """Return the ext fields as strings, as received."""
        return {
            letter: str(value)
            for letter, name in _ATTRIBUTES.items()
            if (value := getattr(self, name)) is not None
        }

    def get(self, letter: str, default: str | None = None) -> str | None:
        return self.ext_fields().get(letter, default)

    def keys(self) -> Iterator[str]:
        return iter(self.ext_fields())

    def __getitem__(self, letter: str) -> str:
        return self.ext_fields()[letter]

    def __contains__(self, letter: object) -> bool:
        return letter in self.ext_fields()

    def items(self) -> Iterator[tuple[str, str]]:
        return iter(self.ext_fields().items())


_ATTRIBUTES = {
    field.encode_name: field.name
    for field in sorted(msgspec.structs.fields(SendHeader), key=lambda field: field.encode_name)
}


def _optional(named: Mapping[str, str], name: str) -> int | None:
    return fields.int32(named, name) if named.get(name) else None
