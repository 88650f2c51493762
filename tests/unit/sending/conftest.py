from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from broker_core.config.loading import build
from broker_core.counted_log import CountedLog
from broker_core.metadata.document import Document
from broker_core.metadata.subscription_groups import SubscriptionGroups
from broker_core.metadata.topics import Topics
from broker_core.sending.dead_letters import DeadLetters
from broker_core.sending.placement import Placement
from tests.support.clock import ManualClock
from tests.support.faulty_storage import FaultyStorage

if TYPE_CHECKING:
    from broker_core.config.broker import BrokerConfig


@dataclass(frozen=True, slots=True)
class Sending:
    """The services that decide where messages go, without a store."""

    config: BrokerConfig
    clock: ManualClock
    topics: Topics
    groups: SubscriptionGroups
    placement: Placement
    dead_letters: DeadLetters


def make_sending(**keys: str) -> Sending:
    configuration, errors = build({"brokerIP1": "10.0.0.1", **keys})
    assert not errors
    clock, storage = ManualClock(), FaultyStorage()
    topics = Topics(configuration.broker, clock, Document(storage, Path("/topics.json")))
    topics.load()
    groups = SubscriptionGroups(configuration.broker, clock, Document(storage, Path("/g.json")))
    counted_log = CountedLog(clock)
    return Sending(
        configuration.broker,
        clock,
        topics,
        groups,
        Placement(configuration.broker, topics, counted_log, clock),
        DeadLetters(topics, groups, counted_log),
    )


@pytest.fixture
def sending() -> Sending:
    return make_sending()
