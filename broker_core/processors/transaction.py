"""Transactions on the wire: ends, checks with the producer, and resuming a parked half message.

Source: broker/processor/EndTransactionProcessor.java,
broker/transaction/AbstractTransactionalMessageCheckListener.java,
broker/processor/AdminBrokerProcessor.java resumeCheckHalfMessage (4.9.7).
"""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, cast

from broker_core.access.account import Permission
from broker_core.access.message_permissions import need_of
from broker_core.errors import CorruptRecordError, RequestRefusedError
from broker_core.formats import record
from broker_core.formats.record import OVERHEAD_V4
from broker_core.message import names, properties
from broker_core.message.ids import HOST_V6_SIZE, offset_msg_id, parse_host, parse_offset_msg_id
from broker_core.message.sys_flag import TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE
from broker_core.processors.wrappers.guard import ACCOUNT
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.protocol.headers import fields
from broker_core.store.results import PutMessageStatus
from broker_core.transaction.half import Outcome, real_place

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from broker_core.clients.producers import Producers
    from broker_core.counted_log import CountedLog
    from broker_core.ha.role import Role
    from broker_core.message.message import MessageExt
    from broker_core.processors.wrappers.guard import Gate
    from broker_core.remoting.connection import Connection
    from broker_core.store.message_store import MessageStore
    from broker_core.store.results import PutMessageResult
    from broker_core.transaction.check import CheckedHalf
    from broker_core.transaction.resolve import Transactions

logger = logging.getLogger(__name__)

OUTCOMES = {
    TRANSACTION_COMMIT_TYPE: Outcome.COMMITTED,
    TRANSACTION_ROLLBACK_TYPE: Outcome.ROLLED_BACK,
}
_ILLEGAL = (
    "The message is illegal, maybe msg body or properties length not matched. "
    "msg body length limit {max_message_size}B, msg properties length limit 32KB."
)
_REFUSALS: Mapping[PutMessageStatus, tuple[ResponseCode, str]] = {
    PutMessageStatus.CREATE_MAPEDFILE_FAILED: (
        ResponseCode.SYSTEM_ERROR,
        "Create mapped file failed.",
    ),
    PutMessageStatus.MESSAGE_ILLEGAL: (ResponseCode.MESSAGE_ILLEGAL, _ILLEGAL),
    PutMessageStatus.PROPERTIES_SIZE_EXCEEDED: (ResponseCode.MESSAGE_ILLEGAL, _ILLEGAL),
    PutMessageStatus.SERVICE_NOT_AVAILABLE: (
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "Service not available now.",
    ),
    PutMessageStatus.OS_PAGE_CACHE_BUSY: (
        ResponseCode.SYSTEM_ERROR,
        "OS page cache busy, please try another machine",
    ),
}


class TransactionProcessor:
    """END_TRANSACTION (37), RESUME_CHECK_HALF_MESSAGE (323). Event loop only.

    Attributes:
        is_plain: whether ending a transaction needs no permission check; read by the native turn.
    """

    def __init__(
        self,
        store_host: bytes,
        max_message_size: int,
        transactions: Transactions,
        store: MessageStore,
        counted_log: CountedLog,
        gate: Gate | None,
        role: Role,
    ) -> None:
        self._role = role
        self._store_host = store_host
        self._max_message_size = max_message_size
        self._transactions = transactions
        self._store = store
        self._counted_log = counted_log
        self._gate = gate
        self.is_plain = gate is None

    def end_transaction(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand] | None:
        """END_TRANSACTION.

        Answers SUCCESS, also when the transaction already had this outcome; SYSTEM_ERROR,
        MESSAGE_ILLEGAL, SERVICE_NOT_AVAILABLE, or on a slave SLAVE_NOT_AVAILABLE. If the producer
        hasn't decided yet, it gets no answer, and the broker asks it later.
        """
        if self._role.is_slave:
            raise RequestRefusedError(
                ResponseCode.SLAVE_NOT_AVAILABLE,
                "this broker is a slave: end the transaction on its master",
            )
        header = request.ext_fields
        producer_group = fields.text(header, "producerGroup")
        queue_offset = fields.int64(header, "tranStateTableOffset")
        commit_log_offset = fields.int64(header, "commitLogOffset", low=0)
        outcome = OUTCOMES.get(fields.int32(header, "commitOrRollback"))
        if outcome is None:
            self._counted_log.report(
                logger,
                logging.INFO,
                "producer doesn't know the outcome",
                f"group={producer_group}",
                "uniq_key=%s producer=%s remark=%s",
                header.get("msgId"),
                connection.remote_address,
                request.remark,
            )
            return None
        try:
            put = self._transactions.end(
                producer_group,
                queue_offset,
                commit_log_offset,
                outcome,
                self._permit(request, connection),
            )
        except RequestRefusedError as refusal:
            self._counted_log.report(
                logger,
                logging.WARNING,
                "end of transaction refused",
                f"group={producer_group}",
                "queue_offset=%d commit_log_offset=%d outcome=%s producer=%s reason=%s",
                queue_offset,
                commit_log_offset,
                outcome.value,
                connection.remote_address,
                refusal.remark,
            )
            raise
        if put is not None and put.status is not PutMessageStatus.PUT_OK:
            raise self._refusal(put.status)
        return self._when_acknowledged(request, put)

    def resume_check_half_message(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """RESUME_CHECK_HALF_MESSAGE: check a message of TRANS_CHECK_MAX_TIME_TOPIC again.

        Answers SUCCESS, or SYSTEM_ERROR.

        Differs: RocketMQ turns any message that msgId names into a half message.
        """
        place = parse_offset_msg_id(request.ext_fields.get("msgId") or "")
        message = None if place is None else self._look(place.commit_log_offset)
        if message is None:
            raise _not_resumed("there is no such message")
        permit = self._permit(request, connection)
        if permit is not None:
            permit(message)
        try:
            self._transactions.resume(message)
        except RequestRefusedError as refusal:
            raise _not_resumed(refusal.remark) from None
        logger.info("parked transaction resumed uniq_key=%s", message.uniq_key)
        return request.answer(ResponseCode.SUCCESS)

    def _permit(
        self, request: RemotingCommand, connection: Connection
    ) -> Callable[[MessageExt], None] | None:
        """Return a check that refuses requests that may not send to a half message's topic."""
        gate = self._gate
        if gate is None:
            return None

        def permit(message: MessageExt) -> None:
            gate.require(request, connection.remote_address, [need_of(message, Permission.PUB)])

        return permit

    def _when_acknowledged(
        self, request: RemotingCommand, put: PutMessageResult | None
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        answer = request.answer(ResponseCode.SUCCESS)
        acknowledged = None if put is None else self._store.acknowledge.until_acknowledged(put)
        return answer if acknowledged is None else self._after(acknowledged, answer)

    async def _after(
        self, acknowledged: Awaitable[PutMessageStatus], answer: RemotingCommand
    ) -> RemotingCommand:
        # A slow or failed flush doesn't undo the outcome: SUCCESS, as in RocketMQ.
        if await acknowledged is PutMessageStatus.PUT_OK:
            self._transactions.write_pending()
        return answer

    def _refusal(self, status: PutMessageStatus) -> RequestRefusedError:
        code, remark = _REFUSALS.get(status, (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR"))
        return RequestRefusedError(code, remark.format(max_message_size=self._max_message_size))

    def _look(self, commit_log_offset: int) -> MessageExt | None:
        view = self._store.look_message(commit_log_offset)
        try:
            return None if view is None else record.decode(view)
        except CorruptRecordError:
            return None


def _not_resumed(reason: str | None) -> RequestRefusedError:
    return RequestRefusedError(
        ResponseCode.SYSTEM_ERROR,
        f"Put message back to {names.RMQ_SYS_TRANS_HALF_TOPIC} failed: {reason}.",
    )


class ProducerInquiry:
    """CHECK_TRANSACTION_STATE (39): asks a producer about a transaction of its group.

    The live producers of a group take turns. With access control, producers that may not send to
    the message's topic are skipped: any client can name a group in a heartbeat, and the request
    contains the whole message. Event loop only.
    """

    def __init__(self, store_host: bytes, producers: Producers, gate: Gate | None) -> None:
        self._store_host = store_host
        self._producers = producers
        self._gate = gate
        self._turns = itertools.count()

    def ask(self, half: CheckedHalf) -> bool:
        """Send the check one-way; return False when no producer of the group is connected."""
        group = half.message.properties.get(names.PROPERTY_PRODUCER_GROUP, "")
        connection = self._available(group, half.message)
        place = real_place(half.message)
        if connection is None or place is None:
            return False
        uniq_key = half.message.uniq_key
        ext_fields = {
            "tranStateTableOffset": str(half.queue_offset),
            "commitLogOffset": str(half.commit_log_offset),
            "offsetMsgId": offset_msg_id(self._store_host, half.commit_log_offset),
        }
        if uniq_key is not None:
            ext_fields["msgId"] = ext_fields["transactionId"] = uniq_key
        body = _record_for_producer(half, *place, self._store_host)
        request = RemotingCommand.request(RequestCode.CHECK_TRANSACTION_STATE, ext_fields, body)
        connection.oneway(request)
        return True

    def _available(self, group: str, message: MessageExt) -> Connection | None:
        """Return the group's next open connection, preferably to a peer that reads."""
        connections = [cast("Connection", one) for one in self._producers.groups.get(group, ())]
        is_open = [one for one in connections if one.is_open and self._may_see(one, message)]
        choice = [one for one in is_open if one.is_writable] or is_open
        return choice[next(self._turns) % len(choice)] if choice else None

    def _may_see(self, connection: Connection, message: MessageExt) -> bool:
        return self._gate is None or self._gate.permits(
            connection.attributes.get(ACCOUNT),
            connection.remote_address,
            need_of(message, Permission.PUB),
        )


def _record_for_producer(half: CheckedHalf, topic: str, queue_id: int, store_host: bytes) -> bytes:
    """Return the half message as a record with its real topic and queue."""
    message = half.message
    topic_bytes = topic.encode()
    properties_bytes = properties.encode(message.properties).encode()
    size_max = (
        OVERHEAD_V4
        + 2 * HOST_V6_SIZE
        + len(message.body)
        + len(topic_bytes)
        + len(properties_bytes)
    )
    buffer = bytearray(size_max)
    size = record.encode_into(
        buffer,
        0,
        topic=topic_bytes,
        queue_id=queue_id,
        queue_offset=half.queue_offset,
        commit_log_offset=half.commit_log_offset,
        body=message.body,
        properties=properties_bytes,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp=message.born_timestamp,
        born_host=parse_host(message.born_host),
        store_timestamp=message.store_timestamp,
        store_host=store_host,
        reconsume_times=message.reconsume_times,
    )
    return bytes(buffer[:size])
