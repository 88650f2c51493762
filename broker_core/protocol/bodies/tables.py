"""Flat answers: a list of names, a map of strings.

Source: common/protocol/body/KVTable.java, TopicList.java (4.9.7).
"""

from __future__ import annotations

import msgspec


class KVTable(msgspec.Struct, rename="camel", kw_only=True):
    """Strings by key (28, 103, 219)."""

    table: dict[str, str]

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


class TopicList(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Topic names (206, 224, 304, 305); for 304, `broker_addr` is the broker to ask next."""

    broker_addr: str | None = None
    topic_list: list[str]

    def encode(self) -> bytes:
        return msgspec.json.encode(self)
