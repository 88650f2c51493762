"""Messages whole, as they are stored, for whoever sends them again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from console.gateway.stored import StoredMessage


@dataclass(frozen=True, slots=True)
class MessageCopy:
    """A message with its whole body, packed as its producer packed it."""

    stored: StoredMessage
    flag: int
    sys_flag: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Copies:
    """What a queue has from an offset on, and where to go on; the same offset: nothing more."""

    messages: tuple[MessageCopy, ...]
    next_offset: int
