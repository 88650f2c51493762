"""The topics of this broker, kept in topics.json.

Source: broker/topic/TopicConfigManager.java, common/topic/TopicValidator.java (4.9.7).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from broker_core.errors import RequestRefusedError, StoreError
from broker_core.message import names
from broker_core.message.data_version import DataVersion
from broker_core.message.topic_config import PERM_INHERIT, PERM_READ, PERM_WRITE, TopicConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker_core.clock import Clock
    from broker_core.config import BrokerConfig
    from broker_core.metadata.document import Document

logger = logging.getLogger(__name__)

READ_WRITE = PERM_READ | PERM_WRITE
BENCHMARK_TOPIC_QUEUE_NUMS = 1024
TOPIC_NUMS_MAX = 100_000
"""Automatic creation ends here: each topic costs files, memory and a line in every registration."""


class Topics:
    """Find, create, change and delete topics. Event loop only.

    `on_change` is called with the changed topic's name after it is persisted.
    """

    def __init__(
        self, config: BrokerConfig, schedule_queue_nums: int, clock: Clock, document: Document
    ) -> None:
        self._config = config
        self._clock = clock
        self._document = document
        self._schedule_queue_nums = schedule_queue_nums
        self.data_version = DataVersion()
        self.table: dict[str, TopicConfig] = {}
        self.on_change: Callable[[str], None] | None = None
        self.system_topics = names.SYSTEM_TOPICS | {
            config.broker_cluster_name,
            config.broker_name,
            self.reply_topic,
        }

    @property
    def reply_topic(self) -> str:
        return f"{self._config.broker_cluster_name}_{names.REPLY_TOPIC_POSTFIX}"

    def load(self) -> None:
        """Put the topics that exist at boot, then what the file says over them.

        Raises:
            StoreError: the file holds no topic table.
        """
        for topic_config in self._boot_topics():
            self.table[topic_config.topic_name] = topic_config
        document = self._document.load()
        if document is None:
            return
        try:
            version = msgspec.convert(document.get("dataVersion") or {}, DataVersion)
            table = msgspec.convert(
                document.get("topicConfigTable") or {}, dict[str, TopicConfig], strict=False
            )
        except msgspec.ValidationError as error:
            raise StoreError(f"{self._document.path}: {error}") from error
        self.data_version = version
        self.table.update(table)

    def find(self, topic: str) -> TopicConfig | None:
        return self.table.get(topic)

    def is_system(self, topic: str) -> bool:
        return topic in self.system_topics or names.is_system_topic(topic)

    def put(self, topic_config: TopicConfig) -> None:
        """Create or change a topic, persist the table, and tell who watches."""
        self.table[topic_config.topic_name] = topic_config
        self._changed(topic_config.topic_name)

    def set_order(self, topics: Iterable[str]) -> None:
        """Mark the topics of this broker that a name server says are ordered.

        None is unmarked: who set the flag here may not have told the name server.
        """
        for topic in topics:
            topic_config = self.table.get(topic)
            if topic_config is not None and not topic_config.order:
                self.put(msgspec.structs.replace(topic_config, order=True))

    def touch(self) -> None:
        """Give the table a new version, so that name servers take it once more."""
        self.data_version = self.data_version.next(self._clock.now_ms())

    def delete(self, topic: str) -> bool:
        """Forget a topic; False when there was none."""
        if self.table.pop(topic, None) is None:
            return False
        self._changed(topic)
        return True

    def create_from_default(
        self, topic: str, default_topic: str, queue_nums: int
    ) -> TopicConfig | None:
        """Create a topic on its first send after the default topic's model, if that is allowed.

        Returns None when the default topic is missing or not inheritable.
        """
        model = self.table.get(default_topic)
        if model is None or not model.is_inherited:
            return None
        if (
            default_topic == names.AUTO_CREATE_TOPIC_KEY_TOPIC
            and not self._config.auto_create_topic_enable
        ):
            return None  # it was allowed at boot, when the default topic was made
        nums = max(0, min(queue_nums, model.write_queue_nums))
        return self._create(topic, nums, model.perm & ~PERM_INHERIT)

    def create_retry(self, topic: str, queue_nums: int) -> TopicConfig:
        """Return a group's %RETRY% or %DLQ% topic, created when it is not there."""
        return self.table.get(topic) or self._create(topic, queue_nums, READ_WRITE)

    def _create(self, topic: str, queue_nums: int, perm: int) -> TopicConfig:
        if len(self.table) >= TOPIC_NUMS_MAX:
            raise RequestRefusedError(
                1, f"topic {topic} is not created: {TOPIC_NUMS_MAX} topics is the limit"
            )
        topic_config = TopicConfig(
            topic_name=topic, read_queue_nums=queue_nums, write_queue_nums=queue_nums, perm=perm
        )
        logger.info("topic created: topic=%s queue_nums=%d perm=%d", topic, queue_nums, perm)
        self.put(topic_config)
        return topic_config

    def _changed(self, topic: str) -> None:
        self.data_version = self.data_version.next(self._clock.now_ms())
        self._document.save(
            {
                "dataVersion": msgspec.to_builtins(self.data_version),
                "topicConfigTable": msgspec.to_builtins(self.table),
            }
        )
        if self.on_change is not None:
            self.on_change(topic)

    def _boot_topics(self) -> list[TopicConfig]:
        config = self._config
        inherited = READ_WRITE | PERM_INHERIT
        boot = [
            _boot_topic(names.RMQ_SYS_SELF_TEST_TOPIC, 1),
            _boot_topic(names.RMQ_SYS_BENCHMARK_TOPIC, BENCHMARK_TOPIC_QUEUE_NUMS),
            _boot_topic(
                config.broker_cluster_name,
                16,
                inherited if config.cluster_topic_enable else PERM_INHERIT,
            ),
            _boot_topic(
                config.broker_name, 1, inherited if config.broker_topic_enable else PERM_INHERIT
            ),
            _boot_topic(names.RMQ_SYS_OFFSET_MOVED_EVENT, 1),
            _boot_topic(names.RMQ_SYS_SCHEDULE_TOPIC, self._schedule_queue_nums),
            _boot_topic(self.reply_topic, 1),
        ]
        if config.auto_create_topic_enable:
            boot.append(
                _boot_topic(
                    names.AUTO_CREATE_TOPIC_KEY_TOPIC, config.default_topic_queue_nums, inherited
                )
            )
        if config.trace_topic_enable:
            boot.append(_boot_topic(config.msg_trace_topic_name, 1))
        return boot


def _boot_topic(topic: str, queue_nums: int, perm: int = READ_WRITE) -> TopicConfig:
    return TopicConfig(
        topic_name=topic, read_queue_nums=queue_nums, write_queue_nums=queue_nums, perm=perm
    )
