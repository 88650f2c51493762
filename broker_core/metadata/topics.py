"""The topics of this broker, stored in topics.json.

Source: broker/topic/TopicConfigManager.java, common/topic/TopicValidator.java (4.9.7).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from broker_core.config.limits import LIMITS
from broker_core.errors import RequestRefusedError, StoreError
from broker_core.message import names
from broker_core.message.data_version import DataVersion
from broker_core.message.topic_config import PERM_INHERIT, PERM_READ, PERM_WRITE, TopicConfig
from broker_core.metadata.document_writer import DocumentWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from broker_core.clock import Clock
    from broker_core.config.broker import BrokerConfig
    from broker_core.config.limits import LimitsConfig
    from broker_core.metadata.document import Document

logger = logging.getLogger(__name__)

SYSTEM_ERROR = 1
"""ResponseCode.SYSTEM_ERROR, which this layer can't import."""
READ_WRITE = PERM_READ | PERM_WRITE
ALL = ""
"""Represents all topics in the set of unwritten changes."""
BENCHMARK_TOPIC_QUEUE_NUMS = 1024
SCHEDULE_TOPIC_QUEUE_NUMS = 18
"""Fixed, regardless of the number of delay levels."""


class Topics:
    """Finds, creates, changes and deletes topics. Event loop only.

    Changes are written later, off the loop: await `writer.until_written` before confirming one.
    `on_change` is called with the changed topic's name.
    """

    def __init__(
        self, config: BrokerConfig, clock: Clock, document: Document, limits: LimitsConfig = LIMITS
    ) -> None:
        self._config = config
        self._limits = limits
        self._clock = clock
        self._document = document
        self.writer = DocumentWriter(document, self._snapshot)
        self.data_version = DataVersion()
        self.table: dict[str, TopicConfig] = {}
        self._derived: list[dict[str, Any]] = []
        self.on_change: Callable[[str], None] | None = None
        self.is_file_missing = False
        """Whether the file was missing on load."""
        self.system_topics = names.SYSTEM_TOPICS | {
            config.broker_cluster_name,
            config.broker_name,
            self.reply_topic,
        }

    @property
    def path(self) -> Path:
        return self._document.path

    @property
    def rebuild_command(self) -> str:
        """The command with which an operator restores lost topics from the store."""
        root = self.path.parent.parent
        return f"python -m broker_core verify --rebuild-topics {root}"

    @property
    def _advice(self) -> str:
        return f"or rebuild it from the store's queues: {self.rebuild_command}"

    @property
    def reply_topic(self) -> str:
        return names.reply_topic(self._config.broker_cluster_name)

    def load(self) -> None:
        """Create the built-in topics, then read the file, which overrides them.

        Raises:
            StoreError: the file isn't a table of topics.
        """
        for topic_config in self._boot_topics():
            self.table[topic_config.topic_name] = topic_config
        try:
            document = self._document.load()
            version = msgspec.convert((document or {}).get("dataVersion") or {}, DataVersion)
            table = msgspec.convert(
                (document or {}).get("topicConfigTable") or {}, dict[str, TopicConfig], strict=False
            )
        except msgspec.ValidationError as error:
            raise StoreError(f"{self.path}: {error}; {self._advice}") from error
        except StoreError as error:
            raise StoreError(f"{error}; {self._advice}") from error
        self.is_file_missing = document is None
        self.data_version = version
        self.table.update(table)
        self._forget_derived()

    def clear_on_change(self, derived: dict[str, Any]) -> None:
        """Clear a cache of data derived from topics, keyed by topic, whenever a topic changes."""
        self._derived.append(derived)

    def find(self, topic: str) -> TopicConfig | None:
        return self.table.get(topic)

    def is_system(self, topic: str) -> bool:
        return topic in self.system_topics or names.is_system_topic(topic)

    def put(self, topic_config: TopicConfig) -> None:
        """Create or change a topic; call `on_change`."""
        self.table[topic_config.topic_name] = topic_config
        self._changed(topic_config.topic_name)

    def set_order(self, topics: Iterable[str]) -> None:
        """Mark the topics that a name server lists as ordered, if this broker has them.

        It never removes a mark, because an administrator may have set it only here.
        """
        for topic in topics:
            topic_config = self.table.get(topic)
            if topic_config is not None and not topic_config.order:
                self.put(msgspec.structs.replace(topic_config, order=True))

    def follow(self, data_version: DataVersion, table: Mapping[str, TopicConfig]) -> None:
        """Copy the master's table, unless it is the same; name servers aren't notified."""
        if data_version == self.data_version:
            return
        self.data_version = data_version
        self.table.clear()
        self.table.update(table)
        self._forget_derived()
        self.writer.changed(ALL)

    def touch(self) -> None:
        """Give the table a new version, so that name servers accept it again."""
        self.data_version = self.data_version.next(self._clock.now_ms())

    def delete(self, topic: str) -> bool:
        """Delete a topic; False if it doesn't exist."""
        if self.table.pop(topic, None) is None:
            return False
        self._changed(topic)
        return True

    def create_from_default(
        self, topic: str, default_topic: str, queue_nums: int, sys_flag: int = 0
    ) -> TopicConfig | None:
        """Create a topic on its first send, with the default topic as template.

        Returns None if the default topic is missing or doesn't allow it.
        """
        model = self.table.get(default_topic)
        if model is None or not model.is_inherited:
            return None
        if (
            default_topic == names.AUTO_CREATE_TOPIC_KEY_TOPIC
            and not self._config.auto_create_topic_enable
        ):
            return None  # the switch was turned off after load created the default topic
        nums = max(0, min(queue_nums, model.write_queue_nums))
        return self._create(
            msgspec.structs.replace(
                model,
                topic_name=topic,
                read_queue_nums=nums,
                write_queue_nums=nums,
                perm=model.perm & ~PERM_INHERIT,
                topic_sys_flag=sys_flag,
                order=False,
            )
        )

    def create_retry(self, topic: str, queue_nums: int, sys_flag: int = 0) -> TopicConfig:
        """Return a group's %RETRY% or %DLQ% topic; create it if it doesn't exist."""
        found = self.table.get(topic)
        return found or self._create(_topic(topic, queue_nums, sys_flag=sys_flag))

    def require_room(self, topic: str) -> None:
        """Check that a topic exists or may be created.

        Raises:
            RequestRefusedError: there are too many.
        """
        if topic not in self.table and len(self.table) >= self._limits.topic_nums_max:
            raise RequestRefusedError(
                SYSTEM_ERROR,
                f"couldn't create topic {topic}: the limit of "
                f"topicNumsMax={self._limits.topic_nums_max} topics is reached",
            )

    def _create(self, topic_config: TopicConfig) -> TopicConfig:
        topic = topic_config.topic_name
        self.require_room(topic)
        # The topic of a group needs no log line in addition to the group's.
        is_groups = topic.startswith(names.RETRY_GROUP_TOPIC_PREFIX)
        logger.log(
            logging.DEBUG if is_groups else logging.INFO,
            "topic created: topic=%s queue_nums=%d perm=%d",
            topic,
            topic_config.write_queue_nums,
            topic_config.perm,
        )
        self.put(topic_config)
        return topic_config

    def _forget_derived(self) -> None:
        for derived in self._derived:
            derived.clear()

    def _changed(self, topic: str) -> None:
        self._forget_derived()
        self.data_version = self.data_version.next(self._clock.now_ms())
        self.writer.changed(topic)
        if self.on_change is not None:
            self.on_change(topic)

    def _snapshot(self) -> Callable[[], dict[str, Any]]:
        version, table = self.data_version, dict(self.table)
        return lambda: {
            "dataVersion": version,
            "topicConfigTable": table,
        }

    def _boot_topics(self) -> list[TopicConfig]:
        config = self._config
        inherited = READ_WRITE | PERM_INHERIT
        boot = [
            _topic(names.RMQ_SYS_SELF_TEST_TOPIC, 1),
            _topic(names.RMQ_SYS_BENCHMARK_TOPIC, BENCHMARK_TOPIC_QUEUE_NUMS),
            _topic(
                config.broker_cluster_name,
                16,
                inherited if config.cluster_topic_enable else PERM_INHERIT,
            ),
            _topic(
                config.broker_name, 1, inherited if config.broker_topic_enable else PERM_INHERIT
            ),
            _topic(names.RMQ_SYS_OFFSET_MOVED_EVENT, 1),
            _topic(names.RMQ_SYS_SCHEDULE_TOPIC, SCHEDULE_TOPIC_QUEUE_NUMS),
            # RocketMQ creates it at its first transaction check, a minute after its start.
            _topic(names.RMQ_SYS_TRANS_HALF_TOPIC, 1),
            _topic(self.reply_topic, 1),
        ]
        if config.auto_create_topic_enable:
            boot.append(
                _topic(
                    names.AUTO_CREATE_TOPIC_KEY_TOPIC, config.default_topic_queue_nums, inherited
                )
            )
        if config.trace_topic_enable:
            boot.append(_topic(config.msg_trace_topic_name, 1))
        return boot


def _topic(
    topic: str, queue_nums: int, perm: int = READ_WRITE, *, sys_flag: int = 0
) -> TopicConfig:
    return TopicConfig(
        topic_name=topic,
        read_queue_nums=queue_nums,
        write_queue_nums=queue_nums,
        perm=perm,
        topic_sys_flag=sys_flag,
    )
