"""Administration of stored messages: units of a ConsumeQueue, deletion of expired files.

Source: broker/processor/AdminBrokerProcessor.java queryConsumeQueue (4.9.7).
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import msgspec

from broker_core.delivery.sql_filter import FilterBits, SqlFilter
from broker_core.errors import RequestRefusedError
from broker_core.formats.cq_ext_unit import ADDRESS_MAX
from broker_core.protocol import java_json
from broker_core.protocol.codes import ResponseCode
from broker_core.protocol.headers import fields

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from broker_core.clients.consumers import Consumers
    from broker_core.delivery.sql92.expression import Expression
    from broker_core.formats.cq_ext_unit import CqExtUnit
    from broker_core.metadata.consumer_filters import ConsumerFilters
    from broker_core.metadata.consumer_offsets import ConsumerOffsets
    from broker_core.metadata.topics import Topics
    from broker_core.processors.long_answers import LongAnswers, Steps
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.store.message_store import MessageStore
    from broker_core.store.results import MessageFilter

    LongAnswer = RemotingCommand | Awaitable[RemotingCommand]

UNITS_MAX = 10_000


class MessagesAdmin:
    """QUERY_CONSUME_QUEUE, CLEAN_EXPIRED_CONSUMEQUEUE, CLEAN_UNUSED_TOPIC,
    DELETE_EXPIRED_COMMITLOG. Event loop only.
    """

    def __init__(
        self,
        topics: Topics,
        consumers: Consumers,
        filters: ConsumerFilters[Expression],
        store: MessageStore,
        offsets: ConsumerOffsets,
        long_answers: LongAnswers,
    ) -> None:
        self._topics = topics
        self._consumers = consumers
        self._filters = filters
        self._store = store
        self._offsets = offsets
        self._long_answers = long_answers

    def query_consume_queue(self, request: RemotingCommand, connection: Connection) -> LongAnswer:
        """QUERY_CONSUME_QUEUE. Answers SUCCESS with the units, without a body if the index has no
        units; SYSTEM_ERROR if the queue doesn't exist.

        Differs: RocketMQ creates a queue by looking at it.
        """
        header = request.ext_fields
        topic = fields.text(header, "topic")
        queue_id = fields.int32(header, "queueId")
        index = fields.int64(header, "index", low=0)
        count = fields.int32(header, "count", low=0)
        topic_config = self._topics.find(topic)
        is_configured = topic_config is not None and 0 <= queue_id < topic_config.read_queue_nums
        if not is_configured and queue_id not in self._store.queue_ids(topic):
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!"
            )
        body: dict[str, Any] = {
            "maxQueueIndex": self._store.max_offset_in_queue(topic, queue_id),
            "minQueueIndex": self._store.min_offset_in_queue(topic, queue_id),
        }
        group = header.get("consumerGroup")
        wanted: MessageFilter | None = None
        is_subscribed = False
        if group is not None:
            found = self._consumers.find(group)
            subscription = None if found is None else found.subscriptions.get(topic)
            if subscription is None:
                body["filterData"] = f"{group}@{topic} is not online!"
            else:
                is_subscribed = True
                registered = self._filters.find(topic, group)
                body["filterData"] = self._filters.text(registered)
                body["subscriptionData"] = msgspec.to_builtins(subscription.data)
                wanted = subscription.tag_filter
                if registered is not None and not subscription.data.is_tag_expression:
                    bits = FilterBits(registered.bit_map, registered.born_time)
                    wanted = SqlFilter(registered.expression, bits)
        units = self._store.extended_units(topic, queue_id, index, min(count, UNITS_MAX))
        if not units:
            remark = f"Index {index} of {queue_id}@{topic} is not exist!"
            return request.answer(ResponseCode.SUCCESS, remark)
        steps = _queue_data(body, units, wanted, is_subscribed=is_subscribed)
        return self._long_answers.answer(request, connection, steps)

    def clean_expired_consume_queues(
        self, request: RemotingCommand, _: Connection
    ) -> RemotingCommand:
        """CLEAN_EXPIRED_CONSUMEQUEUE. Answers SUCCESS.

        Does nothing: when the store deletes a log file, it deletes the units too.
        """
        return request.answer(ResponseCode.SUCCESS)

    def clean_unused_topics(self, request: RemotingCommand, connection: Connection) -> LongAnswer:
        """CLEAN_UNUSED_TOPIC: delete the queues of topics that are no longer configured.

        Answers SUCCESS. Differs: also deletes their consumer offsets, like TopicsAdmin.delete.
        """
        return self._long_answers.answer(request, connection, self._clean_unused_topics())

    def _clean_unused_topics(self) -> Steps:
        for topic in list(self._store.topics()):
            if self._topics.find(topic) is None and not self._topics.is_system(topic):
                self._store.delete_topic(topic)
                self._offsets.delete_topic(topic)
            yield

    def delete_expired_commit_log(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """DELETE_EXPIRED_COMMITLOG: delete expired files in the next round, at any time of day.

        Answers SUCCESS.
        """
        self._store.delete_expired_files_soon()
        return request.answer(ResponseCode.SUCCESS)


def _queue_data(
    body: dict[str, Any],
    units: Iterable[tuple[int, int, int, CqExtUnit | None]],
    wanted: MessageFilter | None,
    *,
    is_subscribed: bool,
) -> Steps:
    data = body["queueData"] = []
    for commit_log_offset, size, tags_code, extension in units:
        data.append(
            {
                "physicOffset": commit_log_offset,
                "physicSize": size,
                "tagsCode": tags_code,
                **_extension(tags_code, extension, wanted, is_subscribed=is_subscribed),
            }
        )
        yield
    return body


def _extension(
    tags_code: int, unit: CqExtUnit | None, wanted: MessageFilter | None, *, is_subscribed: bool
) -> dict[str, Any]:
    """Return the fields that describe a unit's extension; empty without one."""
    if unit is None:
        if tags_code > ADDRESS_MAX:
            return {"eval": False}
        return {"eval": False, "msg": f"Cq extend not exist!addr: {tags_code}"}
    said: dict[str, Any] = {
        "eval": is_subscribed and (wanted is None or wanted.by_ext_unit(unit)),
    }
    content: dict[str, Any] = {
        "msgStoreTime": unit.store_timestamp,
        "size": unit.size,
        "tagsCode": unit.tags_code,
    }
    if unit.bit_map:
        content["filterBitMap"] = base64.b64encode(unit.bit_map).decode()
        said["bitMap"] = _bits(unit.bit_map)
    said["extendDataJson"] = java_json.encode(content).decode()
    return said


def _bits(bit_map: bytes) -> str:
    """Return a bitmap in the format of BitsArray.toString, last bit first."""
    return "".join(
        f"{byte:08b}" + ("" if place % 8 else "\n")
        for place, byte in reversed(list(enumerate(bit_map)))
    )
