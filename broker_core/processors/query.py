"""Queries: stored messages by key, by the place in the log.

Source: broker/processor/QueryMessageProcessor.java (4.9.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.formats.record import topic_of
from broker_core.message import names
from broker_core.protocol.codes import ResponseCode
from broker_core.protocol.headers import fields

if TYPE_CHECKING:
    from broker_core.config import StoreConfig
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.store.message_store import MessageStore

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"


class QueryProcessor:
    """QUERY_MESSAGE, VIEW_MESSAGE_BY_ID. Event loop only."""

    def __init__(self, config: StoreConfig, store: MessageStore) -> None:
        self._config = config
        self._store = store

    def query_message(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """QUERY_MESSAGE. Answers SUCCESS with the records as body, or QUERY_NOT_FOUND.

        The index knows hashes: the records may hold other keys with the same one, which clients
        sort out.
        """
        header = request.ext_fields
        max_num = fields.int32(header, "maxNum", low=1)
        if fields.boolean(header, UNIQUE_KEY_QUERY):
            max_num = self._config.default_query_max_num
        topic = fields.text(header, "topic")
        records = self._store.query_message(
            topic,
            fields.text(header, "key"),
            min(max_num, self._config.max_msgs_num_batch),
            fields.int64(header, "beginTimestamp"),
            fields.int64(header, "endTimestamp"),
        )
        if topic in names.HIDDEN_TOPICS:
            records = []
        timestamp, commit_log_offset = self._store.index_last_update
        ext_fields = {
            "indexLastUpdateTimestamp": str(timestamp),
            "indexLastUpdatePhyoffset": str(commit_log_offset),
        }
        if not records:
            return request.answer(
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
                ext_fields,
            )
        return request.answer(ResponseCode.SUCCESS, None, ext_fields, list(records))

    def view_message_by_id(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """VIEW_MESSAGE_BY_ID. Answers SUCCESS with the record as body, or SYSTEM_ERROR."""
        offset = fields.int64(request.ext_fields, "offset", low=0)
        record = self._store.look_message(offset)
        if record is None or topic_of(record) in names.HIDDEN_TOPICS:
            return request.answer(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}"
            )
        return request.answer(ResponseCode.SUCCESS, body=[record])
