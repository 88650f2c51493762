"""ConsumeHooks: extensions' consume hooks for pulls, commits and returned messages.

The pull and offset processors call them. They wrap the handler for messages that consumers return.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker_core.errors import AbortProcessError, RequestRefusedError
from broker_core.extensions.consume_message_hook import (
    CONSUME_SUCCESS,
    RECONSUME_LATER,
    ConsumeMessageContext,
)
from broker_core.extensions.failures import ExtensionFailedError
from broker_core.message.names import namespace_of
from broker_core.processors.wrappers.hooks import as_failure, command_of, number
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.store.results import GetMessageStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from broker_core.extensions.consume_message_hook import ConsumeMessageHook
    from broker_core.extensions.failures import Failures
    from broker_core.extensions.loading import ActiveExtension
    from broker_core.processors.wrappers.hooks import BrokerFacts
    from broker_core.remoting.connection import Connection
    from broker_core.remoting.dispatch import Answer, Handler
    from broker_core.store.results import GetMessageResult


class QueuePlace(NamedTuple):
    """A group's offset in a queue."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int


class ConsumeHooks:
    """All consume hooks, called in order. Event loop only."""

    def __init__(
        self,
        hooks: tuple[ActiveExtension[ConsumeMessageHook], ...],
        failures: Failures,
        facts: BrokerFacts,
    ) -> None:
        self._hooks = hooks
        self._failures = failures
        self._store_host = facts.broker_addr

    def before_answer(
        self,
        request_code: int,
        place: QueuePlace,
        client_host: str,
        code: int,
        result: GetMessageResult,
    ) -> None:
        """Call the hooks before a pull is answered.

        Raises:
            AbortProcessError: a hook refuses.
        """
        found = result.status is GetMessageStatus.FOUND
        context = ConsumeMessageContext(
            request_code=request_code,
            consumer_group=place.group,
            topic=place.topic,
            namespace=namespace_of(place.topic),
            queue_id=place.queue_id,
            client_host=client_host,
            store_host=self._store_host,
            success=found,
            status=result.status.name,
            code=code,
            queue_offset=place.queue_offset,
            next_begin_offset=result.next_begin_offset,
            message_count=result.message_count if found else 0,
            body_length=result.byte_count if found else 0,
        )
        for label, hook in self._hooks:
            try:
                self._failures.call(label, hook.consume_message_before, context)
            except ExtensionFailedError:
                continue
            except AbortProcessError as refusal:
                raise as_failure(refusal) from None

    def after_commit(self, place: QueuePlace, client_host: str, next_begin_offset: int) -> None:
        """Call the hooks after a group's offset has moved from a previous place."""
        self._after(
            ConsumeMessageContext(
                request_code=RequestCode.UPDATE_CONSUMER_OFFSET,
                consumer_group=place.group,
                topic=place.topic,
                namespace=namespace_of(place.topic),
                queue_id=place.queue_id,
                client_host=client_host,
                store_host=self._store_host,
                success=True,
                status=CONSUME_SUCCESS,
                code=ResponseCode.SUCCESS,
                queue_offset=place.queue_offset,
                next_begin_offset=next_begin_offset,
            )
        )

    def _after(self, context: ConsumeMessageContext) -> None:
        for label, hook in self._hooks:
            self._failures.attempt(label, hook.consume_message_after, context)

    def around(self, handlers: dict[int, Handler]) -> dict[int, Handler]:
        """Return the table with the hooks around CONSUMER_SEND_MSG_BACK."""
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
        self._after(
            ConsumeMessageContext(
                request_code=request.code,
                consumer_group=group,
                topic=header.get("originTopic", ""),
                namespace=namespace_of(group),
                queue_id=-1,
                client_host=connection.remote_address,
                store_host=self._store_host,
                success=code == ResponseCode.SUCCESS,
                status=RECONSUME_LATER,
                code=code,
                message_count=1,
                message_ids={header["originMsgId"]: number(header.get("offset"))},
            )
        )
