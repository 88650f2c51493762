"""Present a RocketMQ 5 client as a remoting connection.

The tables of clients, the transaction check and the console's requests send commands to a
connection. This class turns them into commands on the client's Telemetry stream.

Source: proxy/grpc/v2/channel/GrpcClientChannel.java (5.3.3).
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from typing import TYPE_CHECKING, Any, TypeVar

from broker_core.clock import wait_within
from broker_core.errors import (
    CallStatusError,
    CorruptRecordError,
    RemotingSendError,
    RemotingTimeoutError,
)
from broker_core.formats import record
from broker_core.grpc_messages.clients import (
    PrintThreadStackTraceCommand,
    RecoverOrphanedTransactionCommand,
    TelemetryCommand,
    VerifyMessageCommand,
)
from broker_core.grpc_messages.enums import Code
from broker_core.grpc_services.delivered_messages import message_of
from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from broker_core.clock import Clock
    from broker_core.grpc_messages.shared import Status
    from broker_core.http2.connection import Connection
    from broker_core.listening.turns import Turns

T = TypeVar("T")

VERIFIED = {
    Code.OK: "CR_SUCCESS",
    Code.FAILED_TO_CONSUME_MESSAGE: "CR_LATER",
    Code.MESSAGE_CORRUPTED: "CR_RETURN_NULL",
}
"""Maps a client's consume result to the value that 4.9 consumers report."""
QUESTIONS_MAX = 100
"""Maximum number of unanswered questions to one client."""


class RemoteClient:
    """A client with the interface of a remoting connection. Event loop only.

    Attributes:
        connection: the HTTP/2 connection that the client uses.
        client_id: its x-mq-client-id.
        send_command: sends a command on the client's Telemetry stream; None without a stream.
        end_stream: ends that stream.
        on_closed: called when the broker closes the client.
        attributes: the owner's data about the client, as for a remoting connection.
        turn_began: see remoting's Connection.
    """

    def __init__(self, connection: Connection, client_id: str, turns: Turns, clock: Clock) -> None:
        self.connection = connection
        self.client_id = client_id
        self.send_command: Callable[[TelemetryCommand], None] | None = None
        self.end_stream: Callable[[], None] = _nothing
        self.on_closed: Callable[[RemoteClient], None] | None = None
        self.attributes: dict[str, Any] = {}
        self.turn_began = 0.0
        self.remote_address = connection.remote_address
        self.remote_host = connection.remote_host
        self._turns = turns
        self._clock = clock
        self._opaques = itertools.count(1)
        self._awaited: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._questions: dict[str, asyncio.Future[tuple[Status | None, str]]] = {}

    def __repr__(self) -> str:
        return f"<RemoteClient {self.client_id} {self.remote_address}>"

    # Called by processors, as for a remoting connection.

    @property
    def is_open(self) -> bool:
        return self.connection.is_open

    @property
    def is_writable(self) -> bool:
        return self.connection.outbox.is_writable

    @property
    def is_signed_in(self) -> bool:
        return self.connection.is_signed_in

    def close(self) -> None:
        """End the client's Telemetry stream and remove the client, which then reconnects."""
        if self.on_closed is not None:
            self.on_closed(self)

    def abort(self) -> None:
        """Same as `close`, because other clients may share the connection."""
        self.close()

    def run_alone(self, steps: Generator[None, None, T]) -> asyncio.Future[T]:
        """Run steps in turns."""
        return self._turns.run(steps)

    def send(self, command: RemotingCommand | bytes, *, at_once: bool = False) -> None:
        """Resolve a request that waited for this response; drop notices, which clients can't read.

        Notices announce rebalancing or new offsets: the broker handles both for these clients.
        """
        if isinstance(command, RemotingCommand) and command.is_response:
            awaited = self._awaited.pop(command.opaque, None)
            if awaited is not None and not awaited.done():
                awaited.set_result(command)

    def oneway(self, command: RemotingCommand, *, at_once: bool = False) -> None:
        """Ask about a transaction."""
        if command.code != RequestCode.CHECK_TRANSACTION_STATE or self.send_command is None:
            return
        try:
            half = record.decode(memoryview(command.body))
        except CorruptRecordError:
            return
        transaction_id = command.ext_fields.get("transactionId", "")
        asked = RecoverOrphanedTransactionCommand(message_of(half), transaction_id)
        self.send_command(TelemetryCommand(recover_orphaned_transaction_command=asked))

    async def request(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Request the client's threads, or have it consume a message; return its answer.

        Raises:
            RemotingTimeoutError: no answer arrived in time.
            RemotingSendError: the client doesn't support the request or isn't connected.
        """
        if command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            return await self._running_info(command, timeout_s)
        if command.code == RequestCode.CONSUME_MESSAGE_DIRECTLY and command.body:
            return await self._consume(command, timeout_s)
        raise RemotingSendError(
            f"the client {self.remote_address} speaks gRPC and can't answer request code "
            f"{command.code}"
        )

    # Called by the RPCs.

    def expect(self, request: RemotingCommand) -> asyncio.Future[RemotingCommand]:
        """Give a request its opaque; return a future of the response that `send` may deliver."""
        request.opaque = next(self._opaques)
        awaited: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        self._awaited[request.opaque] = awaited
        return awaited

    def forget(self, request: RemotingCommand) -> None:
        """Forget a request that was answered or is no longer awaited."""
        self._awaited.pop(request.opaque, None)

    def answered(self, nonce: str, status: Status | None, text: str = "") -> None:
        """Resolve a question with the client's answer."""
        question = self._questions.pop(nonce, None)
        if question is not None and not question.done():
            question.set_result((status, text))

    def end(self) -> None:
        """Fail the client's waiting requests and the questions that it can't answer any longer."""
        awaited, self._awaited = self._awaited, {}
        for answer in awaited.values():
            if not answer.done():
                answer.set_exception(
                    CallStatusError(Code.INTERNAL_SERVER_ERROR, "the client disconnected")
                )
        questions, self._questions = self._questions, {}
        for question in questions.values():
            if not question.done():
                question.set_exception(RemotingSendError(f"{self.remote_address} disconnected"))

    # Internal.

    async def _running_info(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        nonce = uuid.uuid4().hex
        asked = PrintThreadStackTraceCommand(nonce)
        question = TelemetryCommand(print_thread_stack_trace_command=asked)
        status, threads = await self._ask(nonce, question, timeout_s)
        if status is not None and status.code != Code.OK:
            return command.answer(ResponseCode.SYSTEM_ERROR, status.message)
        body = {
            "jstack": threads,
            "mqTable": {},
            "properties": {},
            "statusTable": {},
            "subscriptionSet": [],
        }
        return command.answer(ResponseCode.SUCCESS, body=java_json.encode(body))

    async def _consume(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        nonce = uuid.uuid4().hex
        message = message_of(record.decode(memoryview(command.body)))
        question = TelemetryCommand(verify_message_command=VerifyMessageCommand(nonce, message))
        began = self._clock.monotonic()
        status, _ = await self._ask(nonce, question, timeout_s)
        result = VERIFIED.get(Code.OK if status is None else status.code)  # type: ignore[call-overload]
        if result is None:
            assert status is not None
            return command.answer(ResponseCode.SYSTEM_ERROR, f"{status.code} {status.message}")
        body = {
            "autoCommit": True,
            "consumeResult": result,
            "order": False,
            "remark": "" if status is None else status.message,
            "spentTimeMills": round((self._clock.monotonic() - began) * 1000),
        }
        return command.answer(ResponseCode.SUCCESS, body=java_json.encode(body))

    async def _ask(
        self, nonce: str, command: TelemetryCommand, timeout_s: float
    ) -> tuple[Status | None, str]:
        if self.send_command is None or not self.is_open:
            raise RemotingSendError(f"{self.remote_address} has no Telemetry stream")
        if len(self._questions) >= QUESTIONS_MAX:
            raise RemotingSendError(
                f"{self.remote_address} has {QUESTIONS_MAX} unanswered requests"
            )
        question: asyncio.Future[tuple[Status | None, str]]
        question = self._questions[nonce] = asyncio.get_running_loop().create_future()
        self.send_command(command)
        if not await wait_within(self._clock, question, timeout_s):
            self._questions.pop(nonce, None)
            raise RemotingTimeoutError(
                f"{self.remote_address} did not answer within {timeout_s:g} s"
            )
        return question.result()


def _nothing() -> None:
    """Do nothing; the default before the stream starts."""
