"""Administration of stored messages: what a ConsumeQueue holds, what is no longer needed.

Source: broker/processor/AdminBrokerProcessor.java queryConsumeQueue (4.9.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from broker_core.errors import RequestRefusedError
from broker_core.protocol import java_json
from broker_core.protocol.codes import ResponseCode
from broker_core.protocol.headers import fields

if TYPE_CHECKING:
    from broker_core.clients.consumers import Consumers
    from broker_core.metadata.topics import Topics
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.store.message_store import MessageStore

UNITS_MAX = 10_000


class MessagesAdmin:
    """QUERY_CONSUME_QUEUE, CLEAN_EXPIRED_CONSUMEQUEUE, CLEAN_UNUSED_TOPIC,
    DELETE_EXPIRED_COMMITLOG. Event loop only.
    """

    def __init__(self, topics: Topics, consumers: Consumers, store: MessageStore) -> None:
        self._topics = topics
        self._consumers = consumers
        self._store = store

    def query_consume_queue(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """QUERY_CONSUME_QUEUE. Answers SUCCESS with the units, without a body when there is none
        at the index; SYSTEM_ERROR for a queue nobody wrote to.
        """
        header = request.ext_fields
        topic = fields.text(header, "topic")
        queue_id = fields.int32(header, "queueId")
        index = fields.int64(header, "index", low=0)
        count = fields.int32(header, "count", low=0)
        if queue_id not in self._store.queue_ids(topic):
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!"
            )
        body: dict[str, Any] = {
            "maxQueueIndex": self._store.max_offset_in_queue(topic, queue_id),
            "minQueueIndex": self._store.min_offset_in_queue(topic, queue_id),
        }
        group = header.get("consumerGroup")
        if group is not None:
            found = self._consumers.find(group)
            subscription = None if found is None else found.subscriptions.get(topic)
            if subscription is None:
                body["filterData"] = f"{group}@{topic} is not online!"
            else:
                body["filterData"] = "null"
                body["subscriptionData"] = msgspec.to_builtins(subscription.data)
        units = self._store.units(topic, queue_id, index, min(count, UNITS_MAX))
        if not units:
            remark = f"Index {index} of {queue_id}@{topic} is not exist!"
            return request.answer(ResponseCode.SUCCESS, remark)
        body["queueData"] = [
            {
                "eval": False,
                "physicOffset": commit_log_offset,
                "physicSize": size,
                "tagsCode": tags_code,
            }
            for commit_log_offset, size, tags_code in units
        ]
        return request.answer(ResponseCode.SUCCESS, body=java_json.encode(body))

    def clean_expired_consume_queues(
        self, request: RemotingCommand, _: Connection
    ) -> RemotingCommand:
        """CLEAN_EXPIRED_CONSUMEQUEUE. Answers SUCCESS.

        Nothing is left to do here: each deleted file of the log takes its units with it.
        """
        return request.answer(ResponseCode.SUCCESS)

    def clean_unused_topics(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """CLEAN_UNUSED_TOPIC: delete the queues of topics that are not configured any more.

        Answers SUCCESS.
        """
        for topic in self._store.topics():
            if self._topics.find(topic) is None and not self._topics.is_system(topic):
                self._store.delete_topic(topic)
        return request.answer(ResponseCode.SUCCESS)

    def delete_expired_commit_log(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """DELETE_EXPIRED_COMMITLOG: expired files go at the next round, whatever the hour.

        Answers SUCCESS.
        """
        self._store.delete_expired_files_soon()
        return request.answer(ResponseCode.SUCCESS)
