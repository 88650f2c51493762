"""Targets for JSON files: the stored tables of the broker and the name server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.config.broker import BrokerConfig
from broker_core.delay.delay_offsets import DelayOffsets
from broker_core.delivery.sql_filter import compile_filter
from broker_core.errors import StoreError
from broker_core.formats.bloom_filter import BloomFilter
from broker_core.ha.epochs import Epochs
from broker_core.metadata.consumer_filters import ConsumerFilters
from broker_core.metadata.consumer_offsets import ConsumerOffsets
from broker_core.metadata.document import Document
from broker_core.metadata.subscription_groups import SubscriptionGroups
from broker_core.metadata.topics import Topics
from broker_core.namesrv.kv_configs import KvConfigs
from broker_core.store.deleted_topics import DeletedTopics
from broker_core.store.quarantine import Quarantine
from broker_core.store.results import DamagedRange
from tests.support.clock import ManualClock
from tests.support.faulty_storage import FaultyStorage
from tools.fuzz.target import Target

if TYPE_CHECKING:
    from collections.abc import Callable

PATH = Path("/store/config/document.json")
CLOCK = ManualClock()
CONFIG = BrokerConfig(broker_name="broker-a")
BLOOM = BloomFilter(20, 32)


def _topics(storage: FaultyStorage) -> object:
    topics = Topics(CONFIG, CLOCK, Document(storage, PATH))
    topics.load()
    topics.touch()
    Document(storage, PATH).save(
        {"dataVersion": topics.data_version, "topicConfigTable": topics.table}
    )
    return topics.table


def _groups(storage: FaultyStorage) -> object:
    groups = SubscriptionGroups(CONFIG, CLOCK, Document(storage, PATH))
    groups.load()
    Document(storage, PATH).save(
        {"dataVersion": groups.data_version, "subscriptionGroupTable": groups.table}
    )
    return groups.table


def _offsets(storage: FaultyStorage) -> object:
    offsets = ConsumerOffsets(Document(storage, PATH), lambda *_: True)
    offsets.load()
    offsets.lower(lambda *_: 1 << 60)
    Document(storage, PATH).save(offsets.document())
    return offsets.document()


def _delay_offsets(storage: FaultyStorage) -> object:
    offsets = DelayOffsets(Document(storage, PATH))
    offsets.load()
    Document(storage, PATH).save(offsets.document())
    return offsets.table


def _filters(storage: FaultyStorage) -> object:
    filters = ConsumerFilters(compile_filter, BLOOM, lambda: 1000, CLOCK, Document(storage, PATH))
    filters.load()
    table = filters.document()
    Document(storage, PATH).save(table)
    return sorted(table)


def _kv_configs(storage: FaultyStorage) -> object:
    configs = KvConfigs(storage, PATH)
    configs.load()
    found = configs.namespace("ORDER_TOPIC_CONFIG")
    configs.put("namespace", "key", "value")
    return found


def _epochs(storage: FaultyStorage) -> object:
    epochs = Epochs(PATH, storage)
    epochs.load()
    epochs.add_peer("127.0.0.1:1")
    return epochs.entries


def _deleted(storage: FaultyStorage) -> object:
    deleted = DeletedTopics(PATH, storage)
    deleted.load()
    deleted.clamp(1 << 40)
    before = deleted.all()
    deleted.add({})
    return before


def _quarantine(storage: FaultyStorage) -> object:
    quarantine = Quarantine(PATH, storage)
    quarantine.load()
    quarantine.add(DamagedRange(7, 9, "for a test"))
    quarantine.save()
    return quarantine.contains(8)


LOADERS: tuple[Callable[[FaultyStorage], object], ...] = (
    _topics,
    _groups,
    _offsets,
    _delay_offsets,
    _filters,
    _kv_configs,
    _epochs,
    _deleted,
    _quarantine,
)


def documents(data: bytes) -> None:
    """A file is a table or rejected with a message; a written table reads back equal."""
    load = LOADERS[(data[0] if data else 0) % len(LOADERS)]
    storage = FaultyStorage()
    storage.write_atomically(PATH, data[1:])
    try:
        found = load(storage)
    except StoreError:
        return
    assert load(storage) == found


TARGETS = (Target("document", "the JSON configuration files", documents, 0.2),)
