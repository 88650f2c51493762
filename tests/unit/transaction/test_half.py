from __future__ import annotations

import pytest

from broker_core.message.ids import host_bytes
from broker_core.transaction.half import check_times, immunity_ms, is_copy, key_of, withhold

HOST = host_bytes("127.0.0.1", 5000)


def test_a_half_message_remembers_its_target_and_drops_a_delay() -> None:
    properties = {"TRAN_MSG": "true", "DELAY": "3"}

    place = withhold(properties, "T", 5)

    assert place == ("RMQ_SYS_TRANS_HALF_TOPIC", 0)
    assert properties == {"TRAN_MSG": "true", "REAL_TOPIC": "T", "REAL_QID": "5"}


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        (None, None),
        ("30", 30_000),
        ("0", 0),
        ("1000000000", 1_000_000_000_000),
        ("1000000001", None),
        ("00000000030", None),
        ("-1", None),
        ("x", None),
        ("9" * 40, None),
    ],
)
def test_the_immunity_time_is_in_seconds_and_an_invalid_one_is_ignored(
    text: str | None, milliseconds: int | None
) -> None:
    properties = {} if text is None else {"CHECK_IMMUNITY_TIME_IN_SECONDS": text}

    assert immunity_ms(properties) == milliseconds


def test_checks_are_counted_in_the_properties() -> None:
    assert check_times({}) == 0
    assert check_times({"TRANSACTION_CHECK_TIMES": "7"}) == 7
    assert not is_copy({})
    assert is_copy({"TRANSACTION_CHECK_TIMES": "0"})
    assert is_copy({"TRAN_PREPARED_QUEUE_OFFSET": "4"})


def test_a_key_ignores_only_the_parts_that_a_check_changes() -> None:
    properties = {"PGROUP": "g", "UNIQ_KEY": "U", "REAL_TOPIC": "T", "REAL_QID": "1"}
    key = key_of(properties, b"body", 5, HOST)

    assert key_of({**properties, "TRANSACTION_CHECK_TIMES": "3"}, b"body", 5, HOST) == key
    others = [
        key_of({**properties, "PGROUP": "h"}, b"body", 5, HOST),
        key_of({**properties, "UNIQ_KEY": "V"}, b"body", 5, HOST),
        key_of({**properties, "REAL_TOPIC": "S"}, b"body", 5, HOST),
        key_of({**properties, "REAL_QID": "2"}, b"body", 5, HOST),
        key_of(properties, b"other", 5, HOST),
        key_of(properties, b"body", 6, HOST),
        key_of(properties, b"body", 5, host_bytes("127.0.0.1", 5001)),
    ]
    assert key not in others
