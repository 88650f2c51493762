"""Two types of queue names that can't be confused."""

from __future__ import annotations

import pytest

from console.gateway.answers import TopicQueue
from console.lib.stored import BrokerQueue


def test_a_brokers_queue_does_not_belong_to_a_topic() -> None:
    by_broker, by_topic = BrokerQueue("a", 0), TopicQueue("a", 0)

    # The type checker agrees: without the comment it reports the second line.
    wrong: dict[BrokerQueue, int] = {by_topic: 1}  # type: ignore[dict-item]

    assert by_broker != by_topic  # type: ignore[comparison-overlap]
    assert by_broker not in wrong
    assert not isinstance(by_broker, tuple)


@pytest.mark.parametrize("queue", [BrokerQueue("broker-a", 0), BrokerQueue("a:b", 12)])
def test_a_written_queue_is_read_back_unchanged(queue: BrokerQueue) -> None:
    assert BrokerQueue.parse(str(queue)) == queue


def test_a_text_that_names_no_queue_is_rejected() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        BrokerQueue.parse("broker-a")
