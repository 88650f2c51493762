"""Producers: the text that a search looks through."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from console.gateway.connections import Producer


def words_of(producer: Producer) -> str:
    return "\n".join((producer.group, producer.client_id, producer.client_addr)).lower()
