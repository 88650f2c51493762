"""Offsets: the ends of a queue, a group's consumer offset, the offset at a time.

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
    from broker_core.processors.offset_commits import OffsetCommits
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.store.message_store import MessageStore


class OffsetsProcessor:
    """QUERY_CONSUMER_OFFSET, UPDATE_CONSUMER_OFFSET, SEARCH_OFFSET_BY_TIMESTAMP, GET_MAX_OFFSET,
    GET_MIN_OFFSET, GET_EARLIEST_MSG_STORETIME. Event loop only.
    """

    def __init__(
        self, offsets: ConsumerOffsets, commits: OffsetCommits, store: MessageStore
    ) -> None:
        self._offsets = offsets
        self._commits = commits
        self._store = store

    def query_consumer_offset(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """QUERY_CONSUMER_OFFSET. Answers SUCCESS with offset, or QUERY_NOT_FOUND.

        A group without an offset starts a young queue at its first message, regardless of its own
        setting: the answer is 0 while the start of the queue is in memory. QUERY_NOT_FOUND strictly
        means "no offset": a 4.9 client treats any other failure the same way and jumps to the end.
        """
        group = fields.text(request.ext_fields, "consumerGroup")
        topic, queue_id = _queue(request)
        offset = self._offsets.query(group, topic, queue_id)
        self._commits.record_query(group, topic, queue_id)
        if offset >= 0:
            return _offset_answer(request, offset)
        if fields.boolean(request.ext_fields, "setZeroIfNotFound", default=True):
            begins_at_zero = self._store.min_offset_in_queue(topic, queue_id) <= 0
            if begins_at_zero and self._store.is_in_memory(topic, queue_id, 0) is not False:
                return _offset_answer(request, 0)
        raise RequestRefusedError(
            ResponseCode.QUERY_NOT_FOUND,
            "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
        )

    def update_consumer_offset(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """UPDATE_CONSUMER_OFFSET. Answers SUCCESS; smaller offsets are stored too.

        Answers TOPIC_NOT_EXIST, as 5.x does, or SYSTEM_ERROR for an offset that the group can't
        have read up to; see CommitCheck.
        """
        group = fields.text(request.ext_fields, "consumerGroup")
        topic, queue_id = _queue(request)
        offset = fields.int64(request.ext_fields, "commitOffset", low=0)
        if not names.is_legal_name(topic) or not names.is_legal_name(group):
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"topic {topic!r} or group {group!r} is not a legal name"
            )
        self._commits.commit(group, topic, queue_id, offset, connection)
        return request.answer(ResponseCode.SUCCESS)

    def search_offset_by_timestamp(
        self, request: RemotingCommand, _: Connection
    ) -> RemotingCommand:
        """SEARCH_OFFSET_BY_TIMESTAMP. Answers SUCCESS with offset.

        Differs: answers as 5.x does, with the first message stored at or after the time, or the end
        of the queue. 4.9 answers with the nearest message, at the end the last one.
        """
        topic, queue_id = _queue(request)
        timestamp = fields.int64(request.ext_fields, "timestamp")
        upper = request.ext_fields.get("boundaryType", "").upper() == "UPPER"
        return _offset_answer(
            request, self._store.offset_in_queue_by_time(topic, queue_id, timestamp, upper=upper)
        )

    def get_max_offset(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_MAX_OFFSET. Answers SUCCESS with offset, 0 for a queue that was never written."""
        return _offset_answer(request, self._store.max_offset_in_queue(*_queue(request)))

    def get_min_offset(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_MIN_OFFSET. Answers SUCCESS with offset, 0 for a queue that was never written."""
        return _offset_answer(request, self._store.min_offset_in_queue(*_queue(request)))

    def get_earliest_msg_storetime(
        self, request: RemotingCommand, _: Connection
    ) -> RemotingCommand:
        """GET_EARLIEST_MSG_STORETIME. Answers SUCCESS with timestamp, -1 for an empty queue."""
        topic, queue_id = _queue(request)
        first = self._store.min_offset_in_queue(topic, queue_id)
        timestamp = self._store.store_timestamp(topic, queue_id, first)
        return request.answer(ResponseCode.SUCCESS, ext_fields={"timestamp": str(timestamp)})


def _queue(request: RemotingCommand) -> tuple[str, int]:
    header = request.ext_fields
    return fields.text(header, "topic"), fields.int32(header, "queueId", low=0)


def _offset_answer(request: RemotingCommand, offset: int) -> RemotingCommand:
    return request.answer(ResponseCode.SUCCESS, ext_fields={"offset": str(offset)})
