from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker_core.access.account import Permission
from broker_core.access.message_permissions import need_of
from broker_core.access.rules import Need


@pytest.mark.parametrize(
    ("stored_in", "real_topic", "needed"),
    [
        ("T", None, "T"),
        ("SCHEDULE_TOPIC_XXXX", "T", "T"),
        ("SCHEDULE_TOPIC_XXXX", "%RETRY%G", "%RETRY%G"),
        ("SCHEDULE_TOPIC_XXXX", None, "SCHEDULE_TOPIC_XXXX"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "T", "T"),
        # Never committed, whatever its topic.
        ("TRANS_CHECK_MAX_TIME_TOPIC", "T", "TRANS_CHECK_MAX_TIME_TOPIC"),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", "T", "RMQ_SYS_TRANS_OP_HALF_TOPIC"),
        # Written by a producer, who can write anything.
        ("secret", "open", "secret"),
        ("%RETRY%G", "open", "%RETRY%G"),
        ("%DLQ%G", "open", "%DLQ%G"),
    ],
)
def test_a_messages_topic_is_the_one_that_the_broker_reports(
    stored_in: str, real_topic: str | None, needed: str
) -> None:
    properties = {} if real_topic is None else {"REAL_TOPIC": real_topic}
    message: Any = SimpleNamespace(topic=stored_in, properties=properties)

    assert need_of(message, Permission.SUB) == Need(needed, Permission.SUB)
