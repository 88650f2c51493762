"""SendHooks: extensions' send hooks around the send handlers."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from broker_core.errors import AbortProcessError, RequestRefusedError
from broker_core.extensions.failures import ExtensionFailedError
from broker_core.extensions.send_message_hook import SendMessageContext
from broker_core.message import properties
from broker_core.message.names import PROPERTY_UNIQ_KEY, namespace_of
from broker_core.processors.wrappers.hooks import as_failure, command_of, number
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.protocol.headers.send_message import SHORT_NAMES
from broker_core.remoting.dispatch import refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from broker_core.clock import Clock
    from broker_core.extensions.failures import Failures
    from broker_core.extensions.loading import ActiveExtension
    from broker_core.extensions.send_message_hook import SendMessageHook
    from broker_core.processors.wrappers.hooks import BrokerFacts
    from broker_core.remoting.connection import Connection
    from broker_core.remoting.dispatch import Answer, Handler

LONG_HEADERS = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE})
SENDS = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
)


class SendHooks:
    """The send hooks, around the send handlers. Event loop only."""

    def __init__(
        self,
        hooks: tuple[ActiveExtension[SendMessageHook], ...],
        failures: Failures,
        facts: BrokerFacts,
        clock: Clock,
    ) -> None:
        self._hooks = hooks
        self._failures = failures
        self._facts = facts
        self._clock = clock

    def around(self, handlers: dict[int, Handler]) -> dict[int, Handler]:
        """Return the table with the hooks around the send handlers."""
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
                    raise as_failure(refusal) from None
            try:
                answer = handler(request, connection)
            except RequestRefusedError as refusal:
                self._after(context, started, refused(request, refusal))
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
            self._after(context, started, refused(request, refusal))
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
            queue_id=number(get("e")),
            properties=MappingProxyType(table),
            msg_unique_key=table.get(PROPERTY_UNIQ_KEY, ""),
            is_batch=is_batch,
            body_length=len(request.body),
            born_host=connection.remote_address,
            born_timestamp=number(get("g")),
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
            context.queue_id = number(get("queueId"), context.queue_id)
            if "queueOffset" in command.ext_fields:
                context.queue_offset = number(get("queueOffset"))
        for label, hook in self._hooks:
            self._failures.attempt(label, hook.send_message_after, context)
