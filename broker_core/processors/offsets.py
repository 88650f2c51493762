"""Offsets: where a queue begins and ends, where a group stands in it, where a time lies in it.

Source: broker/processor/ConsumerManageProcessor.java, AdminBrokerProcessor.java (4.9.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.errors import RequestRefusedError
from broker_core.message import names
from broker_core.protocol.codes import ResponseCode
from broker_core.protocol.headers import fields

if TYPE_CHECKING:
    from broker_core.metadata.consumer_offsets import ConsumerOffsets
    from broker_core.processors.pull import PullProcessor
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.store.message_store import MessageStore


class OffsetsProcessor:
    """QUERY_CONSUMER_OFFSET, UPDATE_CONSUMER_OFFSET, SEARCH_OFFSET_BY_TIMESTAMP, GET_MAX_OFFSET,
    GET_MIN_OFFSET, GET_EARLIEST_MSG_STORETIME. Event loop only.
    """

    def __init__(self, offsets: ConsumerOffsets, pulls: PullProcessor, store: MessageStore) -> None:
        self._offsets = offsets
        self._pulls = pulls
        self._store = store

    def query_consumer_offset(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """QUERY_CONSUMER_OFFSET. Answers SUCCESS with offset, or QUERY_NOT_FOUND.

        A group without an offset starts a young queue from its first message, whatever it asked
        for: 0 is answered while the queue's beginning is still in memory. Only "there is none"
        is QUERY_NOT_FOUND: a 4.9 client takes any other failure for that and jumps to the end.
        """
        group = fields.text(request.ext_fields, "consumerGroup")
        topic, queue_id = _queue(request)
        offset = self._offsets.query(group, topic, queue_id)
        if offset >= 0:
            return _offset_answer(request, offset)
        if fields.boolean(request.ext_fields, "setZeroIfNotFound", default=True):
            begins_at_zero = self._store.min_offset_in_queue(topic, queue_id) <= 0
            if begins_at_zero and self._store.is_in_memory(topic, queue_id, 0) is not False:
                return _offset_answer(request, 0)
        return request.answer(
            ResponseCode.QUERY_NOT_FOUND,
            "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
        )

    def update_consumer_offset(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """UPDATE_CONSUMER_OFFSET. Answers SUCCESS; a smaller offset than before is stored too."""
        group = fields.text(request.ext_fields, "consumerGroup")
        topic, queue_id = _queue(request)
        offset = fields.int64(request.ext_fields, "commitOffset", low=0)
        if not names.is_legal_name(topic) or not names.is_legal_name(group):
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"topic {topic!r} or group {group!r} is not a legal name"
            )
        self._pulls.commit_offset(group, topic, queue_id, offset, connection)
        return request.answer(ResponseCode.SUCCESS)

    def search_offset_by_timestamp(
        self, request: RemotingCommand, _: Connection
    ) -> RemotingCommand:
        """SEARCH_OFFSET_BY_TIMESTAMP. Answers SUCCESS with offset.

        Differs: as 5.x answers it, the first message stored at or after the time, the queue's end
        when there is none; 4.9 answers the nearest message, at the end the last one.
        """
        topic, queue_id = _queue(request)
        timestamp = fields.int64(request.ext_fields, "timestamp")
        upper = request.ext_fields.get("boundaryType", "").upper() == "UPPER"
        return _offset_answer(
            request, self._store.offset_in_queue_by_time(topic, queue_id, timestamp, upper=upper)
        )

    def get_max_offset(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_MAX_OFFSET. Answers SUCCESS with offset, 0 for a queue nobody wrote to."""
        return _offset_answer(request, self._store.max_offset_in_queue(*_queue(request)))

    def get_min_offset(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_MIN_OFFSET. Answers SUCCESS with offset, 0 for a queue nobody wrote to."""
        return _offset_answer(request, self._store.min_offset_in_queue(*_queue(request)))

    def get_earliest_msg_storetime(
        self, request: RemotingCommand, _: Connection
    ) -> RemotingCommand:
        """GET_EARLIEST_MSG_STORETIME. Answers SUCCESS with timestamp, -1 when there is none."""
        topic, queue_id = _queue(request)
        first = self._store.min_offset_in_queue(topic, queue_id)
        timestamp = self._store.store_timestamp(topic, queue_id, first)
        return request.answer(ResponseCode.SUCCESS, ext_fields={"timestamp": str(timestamp)})


def _queue(request: RemotingCommand) -> tuple[str, int]:
    header = request.ext_fields
    return fields.text(header, "topic"), fields.int32(header, "queueId", low=0)


def _offset_answer(request: RemotingCommand, offset: int) -> RemotingCommand:
    return request.answer(ResponseCode.SUCCESS, ext_fields={"offset": str(offset)})
