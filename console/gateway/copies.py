"""Complete stored messages, for resending."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from console.lib.stored import StoredMessage


@dataclass(frozen=True, slots=True)
class MessageCopy:
    """A message with its whole body, still compressed as its producer sent it."""

    stored: StoredMessage
    flag: int
    sys_flag: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Copies:
    """Messages of a queue from an offset on, and the next offset (unchanged: no more messages)."""

    messages: tuple[MessageCopy, ...]
    next_offset: int
