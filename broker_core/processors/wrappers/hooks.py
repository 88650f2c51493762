"""Shared by hooks: facts about the broker, and readers of answers and refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker_core.errors import AbortProcessError
from broker_core.protocol.codes import ResponseCode
from broker_core.protocol.command import PREFIX, decode

if TYPE_CHECKING:
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.dispatch import Answer

CODE_MAX = 0x7FFF
"""Binary headers carry 16 bits."""


class BrokerFacts(NamedTuple):
    """Facts about the broker for hooks."""

    broker_addr: str
    region_id: str


def command_of(answer: Answer) -> RemotingCommand | None:
    """Return an answer as a command; an encoded one is decoded."""
    if not isinstance(answer, bytes):
        return answer
    _, header = PREFIX.unpack_from(answer)
    end = PREFIX.size + (header & 0xFFFFFF)
    return decode(header >> 24, answer[PREFIX.size : end], answer[end:])


def as_failure(refusal: AbortProcessError) -> AbortProcessError:
    """Return a refusal with a code that clients can't mistake for success."""
    code: object = refusal.code
    if isinstance(code, int) and 0 < code <= CODE_MAX:
        return refusal
    return AbortProcessError(ResponseCode.SYSTEM_ERROR, str(refusal.remark))


def number(text: str | None, otherwise: int = -1) -> int:
    try:
        return int(text or "")
    except ValueError:
        return otherwise
