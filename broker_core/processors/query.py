"""Queries: stored messages by key and by commit_log_offset.

Source: broker/processor/QueryMessageProcessor.java (4.9.7). Differs: the index stores only hashes,
and names with equal hashes are easy to construct; RocketMQ also returns records of other topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.access.account import Permission
from broker_core.access.message_permissions import need_of
from broker_core.errors import RequestRefusedError
from broker_core.formats import record
from broker_core.message import names
from broker_core.protocol.codes import ResponseCode
from broker_core.protocol.headers import fields

if TYPE_CHECKING:
    from broker_core.config.store import StoreConfig
    from broker_core.processors.wrappers.guard import Gate
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.store.message_store import MessageStore

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"


class QueryProcessor:
    """QUERY_MESSAGE, VIEW_MESSAGE_BY_ID. Event loop only."""

    def __init__(self, config: StoreConfig, store: MessageStore, gate: Gate | None) -> None:
        self._config = config
        self._store = store
        self._gate = gate

    def query_message(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """QUERY_MESSAGE. Answers SUCCESS with the records as body, or QUERY_NOT_FOUND.

        The records may include other keys with the same hash, which clients filter out.
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
        records = [
            each
            for each in records
            if topic not in names.HIDDEN_TOPICS and record.topic_of(each) == topic
        ]
        timestamp, commit_log_offset = self._store.index_last_update
        ext_fields = {
            "indexLastUpdateTimestamp": str(timestamp),
            "indexLastUpdatePhyoffset": str(commit_log_offset),
        }
        if not records:
            raise RequestRefusedError(
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
                ext_fields,
            )
        return request.answer(ResponseCode.SUCCESS, None, ext_fields, records)

    def view_message_by_id(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """VIEW_MESSAGE_BY_ID. Answers SUCCESS with the record as body, or SYSTEM_ERROR."""
        offset = fields.int64(request.ext_fields, "offset", low=0)
        found = self._store.look_message(offset)
        if found is None or record.topic_of(found) in names.HIDDEN_TOPICS:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}"
            )
        if self._gate is not None:
            need = need_of(record.decode(found), Permission.SUB)
            self._gate.require(request, connection.remote_address, [need])
        return request.answer(ResponseCode.SUCCESS, body=[found])
