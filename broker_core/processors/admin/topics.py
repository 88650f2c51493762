"""Administration of topics.

Source: broker/processor/AdminBrokerProcessor.java (4.9.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from broker_core.errors import RequestRefusedError
from broker_core.message import names
from broker_core.message.topic_config import (
    MESSAGE_TYPE,
    MESSAGE_TYPES,
    PERM_MAX,
    PERM_READ,
    QUEUE_NUMS_MAX,
    TopicConfig,
)
from broker_core.protocol import java_json
from broker_core.protocol.bodies.registration import DELETED_TOPICS, WITH_DELETED_TOPICS
from broker_core.protocol.codes import ResponseCode
from broker_core.protocol.headers import fields

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker_core.clients.consumers import Consumers
    from broker_core.config.broker import BrokerConfig
    from broker_core.delivery.parked_pulls import ParkedPulls
    from broker_core.metadata.consumer_offsets import ConsumerOffsets
    from broker_core.metadata.topics import Topics
    from broker_core.processors.long_answers import LongAnswers, Steps
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.stats.counters import BrokerStats
    from broker_core.store.message_store import MessageStore

TOPIC_FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")


class TopicsAdmin:
    """UPDATE_AND_CREATE_TOPIC, DELETE_TOPIC_IN_BROKER, GET_ALL_TOPIC_CONFIG, GET_TOPIC_CONFIG,
    GET_TOPIC_STATS_INFO, QUERY_TOPIC_CONSUME_BY_WHO, GET_SYSTEM_TOPIC_LIST_FROM_BROKER. Event loop
    only.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: Topics,
        offsets: ConsumerOffsets,
        consumers: Consumers,
        store: MessageStore,
        stats: BrokerStats,
        parked_pulls: ParkedPulls,
        announced: Callable[[], Awaitable[None] | None],
        long_answers: LongAnswers,
    ) -> None:
        self._config = config
        self._topics = topics
        self._offsets = offsets
        self._consumers = consumers
        self._store = store
        self._stats = stats
        self._parked_pulls = parked_pulls
        self._announced = announced
        self._long_answers = long_answers

    def update_and_create(
        self, request: RemotingCommand, _: Connection
    ) -> Awaitable[RemotingCommand]:
        """UPDATE_AND_CREATE_TOPIC. Answers SUCCESS once the topic is persisted and registered with
        every reachable name server, else SYSTEM_ERROR.
        """
        header = request.ext_fields
        topic = fields.text(header, "topic")
        wrong = names.check_topic(topic)
        if wrong is not None:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, wrong)
        self._refuse_system_topic(topic)
        self._topics.require_room(topic)
        filter_type = header.get("topicFilterType") or TOPIC_FILTER_TYPES[0]
        if filter_type not in TOPIC_FILTER_TYPES:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"topicFilterType {filter_type[:40]!r} is neither SINGLE_TAG nor MULTI_TAG",
            )
        perm = fields.int32(header, "perm", low=0, high=PERM_MAX)
        self._topics.put(
            TopicConfig(
                attributes=self._attributes(topic, header.get("attributes") or ""),
                topic_name=topic,
                read_queue_nums=fields.int32(header, "readQueueNums", low=1, high=QUEUE_NUMS_MAX),
                write_queue_nums=fields.int32(header, "writeQueueNums", low=1, high=QUEUE_NUMS_MAX),
                perm=perm,
                topic_filter_type=filter_type,
                topic_sys_flag=fields.int32(header, "topicSysFlag", 0, low=0, high=3),
                order=fields.boolean(header, "order"),
            )
        )
        if not perm & PERM_READ:
            self._parked_pulls.end(topic)
        return self._answer_when_written(request, topic, self._announced())

    def _attributes(self, topic: str, changes: str) -> dict[str, str] | msgspec.UnsetType:
        """Return a topic's attributes after 5.x changes such as `+message.type=FIFO`.

        Only message.type has a meaning here; other attributes aren't stored.
        """
        found = self._topics.find(topic)
        attributes = msgspec.UNSET if found is None else found.attributes
        for change in changes.split(","):
            sign_and_name, _, value = change.partition("=")
            if sign_and_name == f"-{MESSAGE_TYPE}":
                attributes = msgspec.UNSET
            elif sign_and_name == f"+{MESSAGE_TYPE}":
                if value not in MESSAGE_TYPES:
                    raise RequestRefusedError(
                        ResponseCode.SYSTEM_ERROR,
                        f"{MESSAGE_TYPE} {value[:40]!r} is not one of {', '.join(MESSAGE_TYPES)}",
                    )
                attributes = {MESSAGE_TYPE: value}
        return attributes

    def delete(self, request: RemotingCommand, _: Connection) -> Awaitable[RemotingCommand]:
        """DELETE_TOPIC_IN_BROKER. Answers SUCCESS, even if the topic didn't exist.

        Differs: also deletes the topic's consumer offsets, as 5.x does. 4.9 keeps them, which puts
        the groups past the end of a new topic with the same name. Waiting pulls are answered with
        offset 0 immediately; 4.9 keeps them, and their clients skip messages of the new topic.
        The retry topics of POP groups are deleted with the topic, as in 5.x.
        """
        topic = fields.text(request.ext_fields, "topic")
        self._refuse_system_topic(topic)
        retries = (names.pop_retry_topic(group, topic) for group in self._offsets.groups_of(topic))
        for each in [topic, *(retry for retry in retries if retry in self._topics.table)]:
            self._topics.delete(each)
            self._store.delete_topic(each)
            self._offsets.delete_topic(each)
            self._parked_pulls.end(each)
            self._stats.forget_topic(each)
        return self._answer_when_deleted(request, topic)

    def get_all(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_ALL_TOPIC_CONFIG. Answers SUCCESS with topics.json's content.

        Trebuchet slaves also get the deleted topics: a topic may be created again before the next
        request.
        """
        # Identical to fastjson's text, as the keys are sorted and all are strings; C encodes 50,000
        # topics within one short turn.
        body = msgspec.json.encode(
            {
                "dataVersion": self._topics.data_version,
                "topicConfigTable": dict(sorted(self._topics.table.items())),
            }
        )
        answer = request.answer(ResponseCode.SUCCESS, body=body)
        if WITH_DELETED_TOPICS in request.ext_fields:
            deleted = msgspec.json.encode(self._store.deleted_topics())
            answer.ext_fields[DELETED_TOPICS] = deleted.decode()
        return answer

    def get_one(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_TOPIC_CONFIG. Answers SUCCESS with the TopicConfig, or TOPIC_NOT_EXIST."""
        topic = fields.text(request.ext_fields, "topic")
        topic_config = self._require(topic)
        body = java_json.encode(msgspec.to_builtins(topic_config))
        return request.answer(ResponseCode.SUCCESS, body=body)

    def stats_info(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        """GET_TOPIC_STATS_INFO. Answers SUCCESS with a TopicStatsTable, or TOPIC_NOT_EXIST."""
        topic = fields.text(request.ext_fields, "topic")
        queue_nums = self._require(topic).write_queue_nums
        return self._long_answers.answer(request, connection, self._stats_info(topic, queue_nums))

    def _stats_info(self, topic: str, queue_nums: int) -> Steps:
        store = self._store
        table = {}
        for queue_id in range(queue_nums):
            max_offset = store.max_offset_in_queue(topic, queue_id)
            last = store.store_timestamp(topic, queue_id, max_offset - 1) if max_offset > 0 else 0
            key = java_json.message_queue_key(topic, self._config.broker_name, queue_id)
            table[key] = {
                "lastUpdateTimestamp": max(0, last),
                "maxOffset": max_offset,
                "minOffset": max(0, store.min_offset_in_queue(topic, queue_id)),
            }
            yield
        return {"offsetTable": table}

    def consumed_by(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """QUERY_TOPIC_CONSUME_BY_WHO. Answers SUCCESS with the groups, online or with offsets."""
        topic = fields.text(request.ext_fields, "topic")
        groups = {*self._consumers.groups_subscribing(topic), *self._offsets.groups_of(topic)}
        return request.answer(
            ResponseCode.SUCCESS, body=java_json.encode({"groupList": sorted(groups)})
        )

    def system_topics(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_SYSTEM_TOPIC_LIST_FROM_BROKER. Answers SUCCESS with a TopicList."""
        body = {"topicList": sorted(self._topics.system_topics)}
        return request.answer(ResponseCode.SUCCESS, body=java_json.encode(body))

    async def _answer_when_written(
        self, request: RemotingCommand, topic: str, announced: Awaitable[None] | None = None
    ) -> RemotingCommand:
        await self._topics.writer.until_written(topic)
        if announced is not None:
            await announced
        return request.answer(ResponseCode.SUCCESS)

    async def _answer_when_deleted(self, request: RemotingCommand, topic: str) -> RemotingCommand:
        # After a crash, an offset left in the file would apply to the next topic of that name.
        await self._offsets.persist_in_thread()
        return await self._answer_when_written(request, topic)

    def _require(self, topic: str) -> TopicConfig:
        topic_config = self._topics.find(topic)
        if topic_config is None:
            raise RequestRefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        return topic_config

    def _refuse_system_topic(self, topic: str) -> None:
        if self._topics.is_system(topic):
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"The topic[{topic}] is conflict with system topic."
            )
