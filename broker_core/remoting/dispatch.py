"""Find the handler of a request's code and turn its outcome into a response.

Errors become response codes only here.

Source: remoting/netty/NettyRemotingAbstract.java (4.9.7), processRequestCommand.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from broker_core.errors import RequestRefusedError
from broker_core.isolation import isolated
from broker_core.protocol.codes import ONEWAY_FLAG, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.protocol.frame import FRAME_BYTES_MAX
from broker_core.remoting.deferred_answer import DeferredAnswer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker_core.remoting.connection import Connection

logger = logging.getLogger(__name__)

Answer = RemotingCommand | bytes | None
"""A response, an encoded response, or None to send nothing."""

Handler = Callable[[RemotingCommand, "Connection"], Answer | Awaitable[Answer]]
"""Serves one request code, as a plain function unless the answer must wait. Event loop only."""

OnRefused = Callable[[RemotingCommand, "Connection", RequestRefusedError, float], None]
"""Called for each request that a handler refused, with its arrival time: see Connection.turn_began.
"""


class Dispatcher:
    """Dispatches requests by code and catches the handlers' exceptions. Event loop only.

    Attributes:
        find: returns the current handler of a code, or None.
    """

    __slots__ = ("_handlers", "_on_refused", "find")

    def __init__(
        self, handlers: Mapping[int, Handler], on_refused: OnRefused | None = None
    ) -> None:
        self._on_refused = on_refused
        # Plain ints because a lookup of enum members takes three times as long.
        self._handlers = {int(code): handler for code, handler in handlers.items()}
        self.find = self._handlers.get

    def override(self, handlers: Mapping[int, Handler]) -> None:
        """Replace the handlers of some codes until the next call; an empty mapping restores all.

        This swaps the whole table, so an override adds no cost per request.
        """
        others = {int(code): handler for code, handler in handlers.items()}
        table = {code: others.get(code, handler) for code, handler in self._handlers.items()}
        self.find = table.get if others else self._handlers.get

    def dispatch(self, command: RemotingCommand, connection: Connection) -> bytes | None:
        """Serve a request; return the frame to send now, or None."""
        handler = self.find(command.code)
        if handler is None:
            return self._frame(command, not_supported(command))
        try:
            answer = handler(command, connection)
            # The fast path: an encoded answer to a request that isn't oneway.
            if type(answer) is bytes and not command.flag & ONEWAY_FLAG:
                return answer
            if answer is None:
                return None
            if isinstance(answer, RemotingCommand | bytes):
                return self._frame(command, answer)
        except MemoryError:
            # The work may be half done, so the connection ends without a response.
            raise
        except Exception as error:  # noqa: BLE001
            # One bad request must not end the connection.
            answer = self._answer_to(command, connection, error, connection.turn_began)
            return self._frame(command, answer)
        if isinstance(answer, DeferredAnswer):
            connection.answer_when(command, answer)
        else:
            connection.answer_later(command, self._answer_of(command, connection, answer))
        return None

    def frame_of(
        self, command: RemotingCommand, connection: Connection, outcome: Answer | Exception
    ) -> bytes | None:
        """Return the frame to send for a handler's outcome, or None."""
        if type(outcome) is bytes and not command.flag & ONEWAY_FLAG:
            return outcome
        if not isinstance(outcome, Exception):
            try:
                return self._frame(command, outcome)
            except Exception as error:  # noqa: BLE001
                outcome = error
        return self._frame(command, self._answer_to(command, connection, outcome))

    async def _answer_of(
        self, command: RemotingCommand, connection: Connection, awaitable: Awaitable[Answer]
    ) -> bytes | None:
        try:
            return self._frame(command, await awaitable)
        except Exception as error:  # noqa: BLE001
            return self._frame(command, self._answer_to(command, connection, error))

    def _answer_to(
        self,
        command: RemotingCommand,
        connection: Connection,
        error: Exception,
        received_s: float = 0.0,
    ) -> RemotingCommand:
        """Return the response for a handler's error; `received_s` is 0 in a later turn."""
        if not isinstance(error, RequestRefusedError):
            logger.error(
                "request failed code=%d opaque=%d", command.code, command.opaque, exc_info=error
            )
            return internal_error(command)
        if self._on_refused is not None:
            with isolated("tracing a refused request", command.code):
                self._on_refused(command, connection, error, received_s)
        return refused(command, error)

    def _frame(self, command: RemotingCommand, answer: Answer) -> bytes | None:
        if answer is None or command.flag & ONEWAY_FLAG:
            return None
        if type(answer) is bytes:
            return answer
        assert isinstance(answer, RemotingCommand)
        frame = answer.encode()
        if len(frame) > FRAME_BYTES_MAX:
            logger.error("response too long for a frame code=%d bytes=%d", command.code, len(frame))
            frame = command.answer(
                ResponseCode.SYSTEM_ERROR,
                f"the answer has {len(frame)} bytes, more than a frame may have",
            ).encode()
        return frame


def refused(command: RemotingCommand, refusal: RequestRefusedError) -> RemotingCommand:
    """Return the response to a refused request."""
    return command.answer(refusal.code, refusal.remark, dict(refusal.ext_fields))


def not_supported(command: RemotingCommand) -> RemotingCommand:
    """Return the response to an unknown code, worded as in RocketMQ."""
    return command.answer(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {command.code} not supported"
    )


def internal_error(command: RemotingCommand) -> RemotingCommand:
    """Return the response for an internal error, without details that would help an attacker."""
    return command.answer(ResponseCode.SYSTEM_ERROR, "internal error; see the broker's log")
