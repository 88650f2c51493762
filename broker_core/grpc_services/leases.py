"""AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue, and renewal.

Source: proxy/grpc/v2/consumer/AckMessageActivity.java, ChangeInvisibleDurationActivity.java,
producer/ForwardMessageToDLQActivity.java, proxy/service/receipt/ (5.3.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.access.rules import subscribe_needs
from broker_core.errors import CallStatusError, CorruptRecordError, RequestRefusedError
from broker_core.formats import record
from broker_core.grpc_messages.enums import Code
from broker_core.grpc_messages.receiving import (
    AckMessageResponse,
    AckMessageResultEntry,
    ChangeInvisibleDurationResponse,
    ForwardMessageToDeadLetterQueueResponse,
)
from broker_core.grpc_messages.shared import Status
from broker_core.grpc_messages.times import milliseconds_of
from broker_core.grpc_services.client_settings import RETRY_SECONDS
from broker_core.grpc_services.name_checks import full_name, group_of, topic_of
from broker_core.grpc_services.receipt_handles import NO_PLACE, ReceiptHandle
from broker_core.grpc_services.statuses import OK, status_of, status_of_error
from broker_core.isolation import isolated
from broker_core.message.names import pop_retry_topic
from broker_core.pop.checkpoint import Handle, QueueKey
from broker_core.processors.send_back import WITH_ORIGIN
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.protocol.receipt import RETRY_KIND
from broker_core.service import Service

if TYPE_CHECKING:
    from broker_core.clock import Clock
    from broker_core.config.broker import BrokerConfig
    from broker_core.grpc_messages.receiving import (
        AckMessageRequest,
        ChangeInvisibleDurationRequest,
        ForwardMessageToDeadLetterQueueRequest,
    )
    from broker_core.grpc_services.callers import CallAccess, Caller
    from broker_core.grpc_services.handlers import Handlers
    from broker_core.grpc_services.remote_client import RemoteClient
    from broker_core.pop.engine import PopEngine
    from broker_core.store.message_store import MessageStore

INVISIBLE_MS_MAX = 43_200_000
ENTRIES_MAX = 1_024
"""Entries of one AckMessage request."""
GIVEN_UP = "-1"
"""The delay level of a message that becomes a dead letter."""
SCAN_S = 5.0
SCANNED_AT_ONCE = 200
"""Leases checked before the event loop may do other work: about a millisecond."""
RENEW_BEFORE_MS = 10_000
"""A lease is renewed when it would end within this time."""
_MINUTE_MS = 60_000
RENEWALS_MS = tuple(minutes * _MINUTE_MS for minutes in (1, 3, 5, 10, 30, 60))
"""How long each renewal lasts; the last one repeats."""
RENEWED_MS_MAX = 180 * _MINUTE_MS
RELEASE_MS = 1_000
"""Time until other consumers get the messages of a client that has left."""
RENEWED_LEASES_MAX = 100_000
"""Maximum of all clients together. Above it, a lease ends after its first minute."""


@dataclass(slots=True)
class _RenewedLease:
    """A lease that the broker renews until the consumer acknowledges, changes or forwards it."""

    group: str
    topic: str
    handle: ReceiptHandle
    attempt: int
    begun_ms: int
    times: int = 0


class LeaseService(Service):
    """Event loop only. Call `start` once and `shutdown` once.

    A push consumer relies on the broker to renew the lease while it processes a message. The
    consumer keeps using its first handle, which refers to the renewed lease.
    """

    def __init__(
        self,
        config: BrokerConfig,
        handlers: Handlers,
        access: CallAccess,
        store: MessageStore,
        engine: PopEngine,
        clock: Clock,
    ) -> None:
        super().__init__()
        self._config = config
        self._handlers = handlers
        self._access = access
        self._store = store
        self._engine = engine
        self._clock = clock
        self._renewed: dict[RemoteClient, dict[tuple[str, str, str], _RenewedLease]] = {}
        self._count = 0

    @property
    def renewed_count(self) -> int:
        """The number of leases that the broker renews."""
        return self._count

    def start(self) -> None:
        self.spawn_forever(self._clock, self._scan_forever, name="renewal of leases")

    # The RPCs.

    async def ack(self, caller: Caller, request: AckMessageRequest) -> AckMessageResponse:
        """AckMessage.

        Raises:
            CallStatusError, AccessRefusedError: nothing is acknowledged.
        """
        topic, group = self._required(caller, request)
        if not request.entries:
            raise CallStatusError(Code.INTERNAL_SERVER_ERROR, "ack message result is empty")
        if len(request.entries) > ENTRIES_MAX:
            raise CallStatusError(
                Code.BAD_REQUEST, f"the request has more than {ENTRIES_MAX} entries"
            )
        entries = []
        for entry in request.entries:
            try:
                handle = self._current(caller, group, topic, entry.receipt_handle)
                status = await self.acknowledge(caller, group, topic, handle)
                self._forget(caller.client, group, topic, entry.receipt_handle)
            except (CallStatusError, RequestRefusedError) as error:
                status = status_of_error(error)
            entries.append(AckMessageResultEntry(entry.message_id, entry.receipt_handle, status))
        return AckMessageResponse(_common(entries), entries)

    async def change(
        self, caller: Caller, request: ChangeInvisibleDurationRequest
    ) -> ChangeInvisibleDurationResponse:
        """ChangeInvisibleDuration: replace the client's handle with a new one.

        Raises:
            CallStatusError, RequestRefusedError: the lease is unchanged.
        """
        topic, group = self._required(caller, request)
        duration = request.invisible_duration
        invisible_ms = 0 if duration is None else milliseconds_of(duration)
        require_invisible(invisible_ms, 0)
        handle = self._current(caller, group, topic, request.receipt_handle)
        changed = await self._change(
            caller,
            caller.client,
            group,
            topic,
            handle,
            invisible_ms,
            is_suspended=bool(request.suspend),
        )
        self._forget(caller.client, group, topic, request.receipt_handle)
        return ChangeInvisibleDurationResponse(OK, changed.text())

    async def forward(
        self, caller: Caller, request: ForwardMessageToDeadLetterQueueRequest
    ) -> ForwardMessageToDeadLetterQueueResponse:
        """ForwardMessageToDeadLetterQueue.

        Raises:
            CallStatusError, RequestRefusedError: the message isn't forwarded.
        """
        topic, group = self._required(caller, request)
        handle = self._current(caller, group, topic, request.receipt_handle)
        self._require_leased(group, topic, handle)
        command = caller.request(
            RequestCode.CONSUMER_SEND_MSG_BACK,
            {
                "group": group,
                "offset": str(handle.commit_log_offset),
                "delayLevel": GIVEN_UP,
                "originMsgId": request.message_id,
                "originTopic": topic,
                "maxReconsumeTimes": "0",
                WITH_ORIGIN: "true",
            },
        )
        answer = await self._ask(caller.client, command)
        if answer.code == ResponseCode.SUCCESS:
            await self.acknowledge(caller, group, topic, handle)
            self._forget(caller.client, group, topic, request.receipt_handle)
        return ForwardMessageToDeadLetterQueueResponse(status_of(answer.code, answer.remark))

    # Called when receiving.

    async def acknowledge(
        self, caller: Caller, group: str, topic: str, handle: ReceiptHandle
    ) -> Status:
        """Acknowledge a message; return the status of its entry.

        Raises:
            RequestRefusedError: the message isn't acknowledged.
        """
        command = caller.request(RequestCode.ACK_MESSAGE, _fields(group, topic, handle))
        try:
            answer = await self._ask(caller.client, command)
        except RequestRefusedError as error:
            if error.code == ResponseCode.NO_MESSAGE:
                return Status(Code.INTERNAL_SERVER_ERROR, "ack failed: status is abnormal")
            raise
        return status_of(answer.code, answer.remark)

    async def give_back(
        self, caller: Caller, group: str, topic: str, handle: ReceiptHandle
    ) -> None:
        """Return a message that its client didn't receive; that doesn't count as an attempt."""
        self._forget(caller.client, group, topic, handle.text())
        with isolated("giving a message back", topic):
            await self._change(caller, caller.client, group, topic, handle, 0, is_suspended=True)

    def renew(
        self, caller: Caller, group: str, topic: str, handle: ReceiptHandle, attempt: int
    ) -> None:
        """Renew a lease until its message is done or its client has left."""
        if self._count >= RENEWED_LEASES_MAX:
            return
        leases = self._renewed.setdefault(caller.client, {})
        key = group, topic, handle.text()
        self._count += key not in leases
        leases[key] = _RenewedLease(group, topic, handle, attempt, self._clock.now_ms())

    def client_lost(self, client: RemoteClient) -> None:
        """Release the leases of a client that has left."""
        leases = self._renewed.pop(client, None)
        if leases:
            self._count -= len(leases)
            self.spawn(self._release(client, list(leases.values())), name="release of leases")

    # Internal.

    def _required(
        self,
        caller: Caller,
        request: AckMessageRequest
        | ChangeInvisibleDurationRequest
        | ForwardMessageToDeadLetterQueueRequest,
    ) -> tuple[str, str]:
        """Check the caller's rights; return the request's topic and group."""
        needs = subscribe_needs([full_name(request.topic)], full_name(request.group))
        self._access.require(caller, needs)
        return topic_of(request.topic), group_of(request.group)

    def _current(self, caller: Caller, group: str, topic: str, text: str) -> ReceiptHandle:
        """Return the current handle for a handle that a client holds.

        Raises:
            CallStatusError: INVALID_RECEIPT_HANDLE.
        """
        renewed = self._renewed.get(caller.client, {}).get((group, topic, text))
        handle = ReceiptHandle.parse(text) if renewed is None else renewed.handle
        handle.require_valid(self._clock.now_ms(), self._config.broker_name)
        return handle

    def _forget(self, client: RemoteClient, group: str, topic: str, text: str) -> None:
        leases = self._renewed.get(client)
        if leases is not None and leases.pop((group, topic, text), None) is not None:
            self._count -= 1
            if not leases:
                del self._renewed[client]

    def _require_leased(self, group: str, topic: str, handle: ReceiptHandle) -> None:
        """Check that a handle names a lease, and the log offset of the leased message.

        Raises:
            CallStatusError: INVALID_RECEIPT_HANDLE.
        """
        if handle.commit_log_offset == NO_PLACE:
            raise CallStatusError(Code.INVALID_RECEIPT_HANDLE, "commit log offset is empty")
        receipt = handle.receipt
        if receipt.kind == RETRY_KIND:
            topic = pop_retry_topic(group, topic)
        view = self._store.look_message(handle.commit_log_offset)
        try:
            found = None if view is None else record.decode(view)
        except CorruptRecordError:
            found = None
        if (
            found is None
            or not self._is_leased(QueueKey(group, topic, receipt.queue_id), handle)
            or (found.topic, found.queue_id, found.queue_offset)
            != (topic, receipt.queue_id, receipt.queue_offset)
        ):
            raise CallStatusError(
                Code.INVALID_RECEIPT_HANDLE, "receipt handle matches no leased message"
            )

    def _is_leased(self, key: QueueKey, handle: ReceiptHandle) -> bool:
        receipt = handle.receipt
        return receipt.queue_offset in self._engine.leased_by(
            key,
            Handle(receipt.start_offset, receipt.pop_time_ms),
            is_ordered=receipt.is_ordered,
        )

    def _was_deleted(self, lease: _RenewedLease) -> bool:
        """Return whether a lease ended early: its topic or group was deleted, or it was reset."""
        receipt, topic = lease.handle.receipt, lease.topic
        if receipt.kind == RETRY_KIND:
            topic = pop_retry_topic(lease.group, topic)
        key = QueueKey(lease.group, topic, receipt.queue_id)
        return self._engine.log.is_read and not self._is_leased(key, lease.handle)

    async def _change(
        self,
        caller: Caller | None,
        client: RemoteClient,
        group: str,
        topic: str,
        handle: ReceiptHandle,
        invisible_ms: int,
        *,
        is_suspended: bool = False,
    ) -> ReceiptHandle:
        fields = {**_fields(group, topic, handle), "invisibleTime": str(invisible_ms)}
        if is_suspended:
            fields["suspend"] = "true"
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        command = (
            RemotingCommand.request(code, fields)
            if caller is None
            else caller.request(code, fields)
        )
        try:
            answer = await self._ask(client, command)
        except RequestRefusedError as error:
            if error.code == ResponseCode.NO_MESSAGE:
                raise CallStatusError(
                    Code.INVALID_RECEIPT_HANDLE, error.remark or "receipt handle is expired"
                ) from error
            raise
        changed = answer.ext_fields
        receipt = handle.receipt._replace(
            pop_time_ms=int(changed["popTime"]),
            invisible_ms=int(changed["invisibleTime"]),
            start_offset=handle.receipt.start_offset
            if handle.receipt.is_ordered
            else handle.receipt.queue_offset,
        )
        return handle._replace(receipt=receipt)

    async def _ask(self, client: RemoteClient, command: RemotingCommand) -> RemotingCommand:
        answer = self._handlers.ask(command, client)
        return answer if isinstance(answer, RemotingCommand) else await answer

    async def _release(self, client: RemoteClient, leases: list[_RenewedLease]) -> None:
        for lease in leases:
            with isolated("releasing a lease", lease.topic):
                await self._extend(client, lease, RELEASE_MS)

    async def _scan_forever(self) -> None:
        while True:
            await self._clock.sleep(SCAN_S)
            now_ms = self._clock.now_ms()
            scanned = 0
            for client, leases in list(self._renewed.items()):
                for key, lease in list(leases.items()):
                    scanned += 1
                    if not scanned % SCANNED_AT_ONCE:
                        await self._clock.sleep(0)
                    if self._renewed.get(client, {}).get(key) is not lease:
                        continue  # It was acknowledged, or its client has left, in the meantime.
                    if self._was_deleted(lease):
                        self._forget(client, *key)
                    elif lease.handle.due_ms - now_ms < RENEW_BEFORE_MS:
                        with isolated("renewing a lease", lease.topic):
                            await self._renew(client, key, lease)

    async def _renew(
        self, client: RemoteClient, key: tuple[str, str, str], lease: _RenewedLease
    ) -> None:
        now_ms = self._clock.now_ms()
        if now_ms - lease.begun_ms > RENEWED_MS_MAX:
            self._forget(client, *key)
            retry_s = RETRY_SECONDS[min(lease.attempt, len(RETRY_SECONDS)) - 1]
            await self._extend(client, lease, retry_s * 1_000)
            return
        invisible_ms = RENEWALS_MS[min(lease.times, len(RENEWALS_MS) - 1)]
        # A renewal that the store refuses is retried until the lease has ended.
        has_ended = lease.handle.due_ms <= now_ms
        if await self._extend(client, lease, invisible_ms):
            lease.times += 1
        elif has_ended:
            self._forget(client, *key)

    async def _extend(self, client: RemoteClient, lease: _RenewedLease, invisible_ms: int) -> bool:
        """Change the end of a lease; return whether the lease existed."""
        try:
            lease.handle = await self._change(
                None, client, lease.group, lease.topic, lease.handle, invisible_ms
            )
        except (CallStatusError, RequestRefusedError):
            return False
        return True


def require_invisible(invisible_ms: int, low: int) -> int:
    """Return an invisible time, or raise if it isn't allowed.

    Raises:
        CallStatusError: ILLEGAL_INVISIBLE_TIME.
    """
    if invisible_ms < low:
        raise CallStatusError(
            Code.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too small. min is {low}"
        )
    if invisible_ms > INVISIBLE_MS_MAX:
        raise CallStatusError(
            Code.ILLEGAL_INVISIBLE_TIME,
            f"the invisibleTime is too large. max is {INVISIBLE_MS_MAX}",
        )
    return invisible_ms


def _fields(group: str, topic: str, handle: ReceiptHandle) -> dict[str, str]:
    receipt = handle.receipt
    return {
        "consumerGroup": group,
        "topic": pop_retry_topic(group, topic) if receipt.kind == RETRY_KIND else topic,
        "queueId": str(receipt.queue_id),
        "extraInfo": receipt.text(),
        "offset": str(receipt.queue_offset),
    }


def _common(entries: list[AckMessageResultEntry]) -> Status:
    first = entries[0].status
    assert first is not None
    if all(entry.status is not None and entry.status.code == first.code for entry in entries):
        return first
    return Status(Code.MULTIPLE_RESULTS, "mixed acknowledgement results")
