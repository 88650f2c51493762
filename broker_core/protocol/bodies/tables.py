"""Flat answers: a list of names, a map of texts.

Source: common/protocol/body/KVTable.java, TopicList.java (4.9.7).
"""

from __future__ import annotations

import msgspec


class KVTable(msgspec.Struct, rename="camel", kw_only=True):
    """Texts by key (28, 103, 219)."""

    table: dict[str, str]

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


class TopicList(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Topic names (206, 224, 304, 305); 304 answers a broker to ask next in `broker_addr`."""

    broker_addr: str | None = None
    topic_list: list[str]

    def encode(self) -> bytes:
        return msgspec.json.encode(self)
