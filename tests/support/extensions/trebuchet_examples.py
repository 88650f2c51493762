"""Extensions of an installed package; they write the events they see to a file.

Put the directory on a broker's PYTHONPATH: it has the dist-info that pip would leave.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.errors import AbortProcessError
from broker_core.extensions.store_plug_in import AbstractPluginMessageStore
from broker_core.extensions.transaction_listener import Resolution

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.extensions.consume_message_hook import ConsumeMessageContext
    from broker_core.extensions.context import ExtensionContext
    from broker_core.extensions.send_message_hook import SendMessageContext
    from broker_core.extensions.store_plug_in import MessagePort, PutMessage
    from broker_core.extensions.transaction_listener import HalfMessage
    from broker_core.protocol.command import RemotingCommand
    from broker_core.store.results import PutMessageResult

NO_PERMISSION = 16
MESSAGE_ILLEGAL = 13


class Notes:
    """A file of JSON lines, at `extension.NAME.file`."""

    interface_version = 1

    def __init__(self, context: ExtensionContext) -> None:
        self._file = Path(context.options["file"]).open("a", buffering=1)  # noqa: SIM115

    def note(self, event: str, **facts: object) -> None:
        self._file.write(json.dumps({"event": event, **facts}) + "\n")

    def close(self) -> None:
        self.note("closed", what=type(self).__name__)
        self._file.close()


class SendNotes(Notes):
    def send_message_before(self, context: SendMessageContext) -> None:
        self.note("before", topic=context.topic, keys=context.properties.get("KEYS"))

    def send_message_after(self, context: SendMessageContext) -> None:
        self.note(
            "after", topic=context.topic, code=context.code, queue_offset=context.queue_offset
        )


class KeysOnly:
    interface_version = 1

    def __init__(self, context: ExtensionContext) -> None:
        self._topic = context.options["topic"]

    def send_message_before(self, context: SendMessageContext) -> None:
        if context.topic == self._topic and not context.properties.get("KEYS"):
            raise AbortProcessError(MESSAGE_ILLEGAL, f"messages of {self._topic} need a key")

    def send_message_after(self, context: SendMessageContext) -> None:
        pass


class ConsumeNotes(Notes):
    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        self.note("pulled", group=context.consumer_group, count=context.message_count)

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        self.note("consumed", group=context.consumer_group, to=context.next_begin_offset)


class RequestNotes(Notes):
    def do_before_request(self, _: str, request: RemotingCommand) -> None:
        self.note("request", code=request.code)

    def do_after_response(
        self, _: str, request: RemotingCommand, response: RemotingCommand | None
    ) -> None:
        self.note("response", code=request.code, answered=response and response.code)


class Badge:
    interface_version = 1

    def __init__(self, context: ExtensionContext) -> None:
        self._badge = context.options["badge"]

    def validate(self, request: RemotingCommand, _: str) -> None:
        if request.ext_fields.get("badge") != self._badge:
            raise AbortProcessError(NO_PERMISSION, "show your badge")


class CommitsAtLast(Notes):
    def resolve_discard(self, half: HalfMessage) -> Resolution:
        self.note("discard", uniq_key=half.uniq_key, checks=half.check_times)
        return Resolution.COMMIT

    def send_check(self, half: HalfMessage, ask: Callable[[], bool]) -> bool:
        is_asked = ask()
        self.note("check", uniq_key=half.uniq_key, asked=is_asked)
        return is_asked


class StoreNotes(AbstractPluginMessageStore):
    def __init__(self, context: ExtensionContext, next_port: MessagePort) -> None:
        super().__init__(context, next_port)
        self._notes = Notes(context)

    def put_message(self, message: PutMessage) -> PutMessageResult:
        result = super().put_message(message)
        self._notes.note("put", topic=message.topic, status=result.status.name)
        return result
