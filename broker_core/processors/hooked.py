"""Hooked handlers: a table of requests with the extensions' hooks around them.

The table is what changes, or the class of a processor, when the broker is composed: without hooks
a request costs nothing more.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from broker_core.errors import AbortProcessError, RequestRefusedError
from broker_core.extensions.consume_message_hook import (
    CONSUME_SUCCESS,
    RECONSUME_LATER,
    ConsumeMessageContext,
)
from broker_core.extensions.failures import ExtensionFailedError
from broker_core.extensions.send_message_hook import SendMessageContext
from broker_core.message import properties
from broker_core.message.names import PROPERTY_UNIQ_KEY, namespace_of
from broker_core.processors.pull import PullProcessor, code_of
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import PREFIX, RemotingCommand, decode
from broker_core.protocol.headers.send_message import SHORT_NAMES
from broker_core.store.results import GetMessageStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from broker_core.clock import Clock
    from broker_core.extensions.consume_message_hook import ConsumeMessageHook
    from broker_core.extensions.failures import Failures
    from broker_core.extensions.loading import Loaded
    from broker_core.extensions.rpc_hook import RPCHook
    from broker_core.extensions.send_message_hook import SendMessageHook
    from broker_core.processors.pull import Pull
    from broker_core.remoting.connection import Connection
    from broker_core.remoting.dispatch import Answer, Handler
    from broker_core.store.results import GetMessageResult

CODE_MAX = 0x7FFF
"""Binary headers carry 16 bits."""
LONG_HEADERS = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE})
SENDS = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
)


class BrokerFacts(NamedTuple):
    """What hooks are told of the broker."""

    broker_addr: str
    region_id: str


class SendHooks:
    """The send hooks, around the handlers of sends. Event loop only."""

    def __init__(
        self,
        hooks: tuple[Loaded[SendMessageHook], ...],
        failures: Failures,
        facts: BrokerFacts,
        clock: Clock,
    ) -> None:
        self._hooks = hooks
        self._failures = failures
        self._facts = facts
        self._clock = clock

    def around(self, handlers: dict[int, Handler]) -> dict[int, Handler]:
        """Return the table with the hooks around its sends."""
        return {
            code: self._around(handler) if code in SENDS else handler
            for code, handler in handlers.items()
        }

    def _around(self, handler: Handler) -> Handler:
        def serve(request: RemotingCommand, connection: Connection) -> Answer | Awaitable[Answer]:
            context = self._context(request, connection)
            started = self._clock.monotonic()
            for label, hook in self._hooks:
                try:
                    self._failures.call(label, hook.send_message_before, context)
                except ExtensionFailedError:
                    continue
                except AbortProcessError as refusal:
                    raise checked(refusal) from None
            try:
                answer = handler(request, connection)
            except RequestRefusedError as refusal:
                self._after(context, started, request.answer(refusal.code, refusal.remark))
                raise
            if answer is None or isinstance(answer, RemotingCommand | bytes):
                self._after(context, started, answer)
                return answer
            return self._later(context, started, request, answer)

        return serve

    async def _later(
        self,
        context: SendMessageContext,
        started: float,
        request: RemotingCommand,
        awaited: Awaitable[Answer],
    ) -> Answer:
        try:
            answer = await awaited
        except RequestRefusedError as refusal:
            self._after(context, started, request.answer(refusal.code, refusal.remark))
            raise
        self._after(context, started, answer)
        return answer

    def _context(self, request: RemotingCommand, connection: Connection) -> SendMessageContext:
        header: Mapping[str, str] = request.ext_fields
        if request.code in LONG_HEADERS:
            header = {SHORT_NAMES.get(name, name): value for name, value in header.items()}
        get = header.get
        table = properties.decode(get("i", ""))
        topic = get("b", "")
        is_batch = request.code == RequestCode.SEND_BATCH_MESSAGE or get("m") == "true"
        return SendMessageContext(
            request_code=request.code,
            producer_group=get("a", ""),
            topic=topic,
            namespace=namespace_of(topic),
            queue_id=_number(get("e")),
            properties=MappingProxyType(table),
            msg_unique_key=table.get(PROPERTY_UNIQ_KEY, ""),
            is_batch=is_batch,
            body_length=len(request.body),
            born_host=connection.remote_address,
            born_timestamp=_number(get("g")),
            broker_addr=self._facts.broker_addr,
            broker_region_id=self._facts.region_id,
        )

    def _after(self, context: SendMessageContext, started: float, answer: Answer) -> None:
        context.cost_ms = (self._clock.monotonic() - started) * 1000
        command = command_of(answer)
        if command is not None:
            get = command.ext_fields.get
            context.code = command.code
            context.is_success = command.code == ResponseCode.SUCCESS
            context.error_msg = command.remark
            context.msg_id = get("msgId")
            context.queue_id = _number(get("queueId"), context.queue_id)
            if "queueOffset" in command.ext_fields:
                context.queue_offset = _number(get("queueOffset"))
        for label, hook in self._hooks:
            self._failures.attempt(label, hook.send_message_after, context)


class ConsumeHooks:
    """The consume hooks. Event loop only."""

    def __init__(
        self,
        hooks: tuple[Loaded[ConsumeMessageHook], ...],
        failures: Failures,
        facts: BrokerFacts,
    ) -> None:
        self._hooks = hooks
        self._failures = failures
        self.store_host = facts.broker_addr

    def before(self, context: ConsumeMessageContext) -> None:
        """Tell of a pull that is about to be answered.

        Raises:
            AbortProcessError: a hook refuses.
        """
        for label, hook in self._hooks:
            try:
                self._failures.call(label, hook.consume_message_before, context)
            except ExtensionFailedError:
                continue
            except AbortProcessError as refusal:
                raise checked(refusal) from None

    def after(self, context: ConsumeMessageContext) -> None:
        """Tell of what a consumer did with messages."""
        for label, hook in self._hooks:
            self._failures.attempt(label, hook.consume_message_after, context)

    def around(self, handlers: dict[int, Handler]) -> dict[int, Handler]:
        """Return the table with the hooks told of messages that are given back."""
        table = dict(handlers)
        code = RequestCode.CONSUMER_SEND_MSG_BACK
        table[code] = self._around(table[code])
        return table

    def _around(self, handler: Handler) -> Handler:
        def serve(request: RemotingCommand, connection: Connection) -> Answer | Awaitable[Answer]:
            if not request.ext_fields.get("originMsgId", "").strip():
                return handler(request, connection)
            try:
                answer = handler(request, connection)
            except RequestRefusedError as refusal:
                self._given_back(request, connection, refusal.code)
                raise
            if answer is None or isinstance(answer, RemotingCommand | bytes):
                command = command_of(answer)
                self._given_back(request, connection, -1 if command is None else command.code)
                return answer
            return self._later(request, connection, answer)

        return serve

    async def _later(
        self, request: RemotingCommand, connection: Connection, awaited: Awaitable[Answer]
    ) -> Answer:
        answer = await awaited
        command = command_of(answer)
        self._given_back(request, connection, -1 if command is None else command.code)
        return answer

    def _given_back(self, request: RemotingCommand, connection: Connection, code: int) -> None:
        header = request.ext_fields
        group = header.get("group", "")
        self.after(
            ConsumeMessageContext(
                request_code=request.code,
                consumer_group=group,
                topic=header.get("originTopic", ""),
                namespace=namespace_of(group),
                queue_id=-1,
                client_host=connection.remote_address,
                store_host=self.store_host,
                success=code == ResponseCode.SUCCESS,
                status=RECONSUME_LATER,
                code=code,
                message_count=1,
                message_ids={header["originMsgId"]: _number(header.get("offset"))},
            )
        )


class HookedPullProcessor(PullProcessor):
    """A PullProcessor whose answers and commits consume hooks are told of.

    Attributes:
        hooks: who is told; set before the first request.
    """

    hooks: ConsumeHooks

    def answer(self, pull: Pull, result: GetMessageResult) -> RemotingCommand:
        found = result.status is GetMessageStatus.FOUND
        context = ConsumeMessageContext(
            request_code=pull.request.code,
            consumer_group=pull.group,
            topic=pull.topic,
            namespace=namespace_of(pull.topic),
            queue_id=pull.queue_id,
            client_host=pull.connection.remote_address,
            store_host=self.hooks.store_host,
            success=found,
            status=result.status.name,
            code=code_of(result.status, pull.queue_offset),
            queue_offset=pull.queue_offset,
            next_begin_offset=result.next_begin_offset,
            message_count=result.message_count if found else 0,
            body_length=result.byte_count if found else 0,
        )
        try:
            self.hooks.before(context)
        except AbortProcessError as refusal:
            return pull.request.answer(refusal.code, refusal.remark)
        return super().answer(pull, result)

    def commit_offset(
        self, group: str, topic: str, queue_id: int, offset: int, connection: Connection
    ) -> None:
        before = self._offsets.query(group, topic, queue_id)
        super().commit_offset(group, topic, queue_id, offset, connection)
        if offset != before:
            self.hooks.after(
                ConsumeMessageContext(
                    request_code=RequestCode.UPDATE_CONSUMER_OFFSET,
                    consumer_group=group,
                    topic=topic,
                    namespace=namespace_of(topic),
                    queue_id=queue_id,
                    client_host=connection.remote_address,
                    store_host=self.hooks.store_host,
                    success=True,
                    status=CONSUME_SUCCESS,
                    code=ResponseCode.SUCCESS,
                    queue_offset=before,
                    next_begin_offset=offset,
                )
            )


class RequestHooks:
    """The RPC hooks, around all handlers. Event loop only."""

    def __init__(self, hooks: tuple[Loaded[RPCHook], ...], failures: Failures) -> None:
        self._hooks = hooks
        self._failures = failures

    def around(self, handlers: dict[int, Handler]) -> dict[int, Handler]:
        """Return the table with the hooks around each handler."""
        return {code: self._around(handler) for code, handler in handlers.items()}

    def _around(self, handler: Handler) -> Handler:
        def serve(request: RemotingCommand, connection: Connection) -> Answer | Awaitable[Answer]:
            remote_address = connection.remote_address
            request = request.with_texts()
            for label, hook in self._hooks:
                try:
                    self._failures.call(label, hook.do_before_request, remote_address, request)
                except ExtensionFailedError:
                    continue
                except AbortProcessError as refusal:
                    raise checked(refusal) from None
            try:
                answer = handler(request, connection)
            except RequestRefusedError as refusal:
                answer = request.answer(refusal.code, refusal.remark)
            if answer is None or isinstance(answer, RemotingCommand | bytes):
                return self._after(remote_address, request, answer)
            return self._later(remote_address, request, answer)

        return serve

    async def _later(
        self, remote_address: str, request: RemotingCommand, awaited: Awaitable[Answer]
    ) -> Answer:
        try:
            answer = await awaited
        except RequestRefusedError as refusal:
            answer = request.answer(refusal.code, refusal.remark)
        return self._after(remote_address, request, answer)

    def _after(self, remote_address: str, request: RemotingCommand, answer: Answer) -> Answer:
        response = command_of(answer)
        for label, hook in self._hooks:
            self._failures.attempt(label, hook.do_after_response, remote_address, request, response)
        return response


def command_of(answer: Answer) -> RemotingCommand | None:
    """Return an answer as a command, also one that is encoded already."""
    if not isinstance(answer, bytes):
        return answer
    _, header = PREFIX.unpack_from(answer)
    end = PREFIX.size + (header & 0xFFFFFF)
    return decode(header >> 24, answer[PREFIX.size : end], answer[end:])


def checked(refusal: AbortProcessError) -> AbortProcessError:
    """Return a refusal that clients cannot take for a success."""
    code: object = refusal.code
    if isinstance(code, int) and 0 < code <= CODE_MAX:
        return refusal
    return AbortProcessError(ResponseCode.SYSTEM_ERROR, str(refusal.remark))


def _number(text: str | None, otherwise: int = -1) -> int:
    try:
        return int(text or "")
    except ValueError:
        return otherwise
