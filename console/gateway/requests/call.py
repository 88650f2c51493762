"""A single request: send it, check the code, parse the answer."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from console.gateway.answers import MessageQueue
from console.gateway.errors import UnreadableAnswerError, refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Ask(Protocol):
    """Sends a command to an address and returns its answer."""

    async def __call__(
        self, address: str, command: RemotingCommand, timeout_s: float | None = None
    ) -> RemotingCommand: ...


async def call(
    ask: Ask,
    address: str,
    code: RequestCode,
    ext_fields: Mapping[str, object] | None = None,
    body: bytes = b"",
    *,
    timeout_s: float | None = None,
    also: frozenset[int] = frozenset(),
) -> RemotingCommand:
    """Send a request; return the answer if its code is success or in `also`.

    Raises:
        RequestFailedError: the answer has another code.
    """
    command = RemotingCommand.request(code, texts(ext_fields or {}), body)
    answer = await ask(address, command, timeout_s)
    if answer.code != ResponseCode.SUCCESS and answer.code not in also:
        raise refused(address, answer.code, answer.remark)
    return answer


def texts(fields: Mapping[str, object]) -> dict[str, str]:
    """Return header fields as wire text, with booleans in Java's form."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in fields.items()
    }


@contextmanager
def reading(address: str, code: RequestCode) -> Iterator[None]:
    """Convert any error while parsing an answer to UnreadableAnswerError."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__} {error}"
        raise UnreadableAnswerError(address, code.name, reason) from error


def body_of(answer: RemotingCommand) -> Any:
    return java_json.decode(answer.body)


def queue_of(key: str) -> MessageQueue:
    """Return the queue given as a map key."""
    queue = json.loads(key)
    return MessageQueue(str(queue["topic"]), str(queue["brokerName"]), int(queue["queueId"]))


def timestamp(value: object) -> int | None:
    """Return a time in ms, or None if the wire value is 0 or less."""
    number = int(str(value))
    return number if number > 0 else None
