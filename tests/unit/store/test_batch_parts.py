from __future__ import annotations

import pytest

from broker_core.steps import run_to_end
from broker_core.store.batch_parts import (
    BATCH_KEYS_MAX,
    BATCH_MESSAGES_MAX,
    MESSAGES_PER_STEP,
    BatchParts,
    read_batch,
)
from broker_core.store.results import PutMessageStatus, RefusedPutError
from tests.support.builders import batch_item

ONE = batch_item(b"x")


def read(body: bytes, properties: str = "") -> BatchParts:
    return run_to_end(read_batch(body, properties, 91, b"\x01T", is_guarded=False))


def test_the_number_of_messages_in_a_batch_is_limited() -> None:
    assert len(read(ONE * BATCH_MESSAGES_MAX).items) == BATCH_MESSAGES_MAX

    with pytest.raises(RefusedPutError) as refused:
        read(ONE * (BATCH_MESSAGES_MAX + 1))
    assert refused.value.status is PutMessageStatus.BATCH_TOO_LARGE


def test_the_number_of_keys_in_a_batch_is_limited_except_for_unique_ones() -> None:
    unique = b"UNIQ_KEY\x01u"
    half = batch_item(b"", b"KEYS\x01" + b"k " * (BATCH_KEYS_MAX // 2 - 1) + b"k\x02" + unique)
    one_more = batch_item(b"", b"KEYS\x01k")

    assert len(read(half * 2 + batch_item(b"", unique)).items) == 3
    with pytest.raises(RefusedPutError) as refused:
        read(half * 2 + one_more)
    assert refused.value.status is PutMessageStatus.BATCH_TOO_LARGE


def test_keys_of_the_whole_batch_count_for_each_message() -> None:
    messages = BATCH_KEYS_MAX // 10

    assert len(read(ONE * messages, "KEYS\x01" + "k " * 9 + "k").items) == messages
    with pytest.raises(RefusedPutError):
        read(ONE * (messages + 1), "KEYS\x01" + "k " * 9 + "k")


def test_reading_pauses() -> None:
    steps = read_batch(ONE * 10 * MESSAGES_PER_STEP, "", 91, b"\x01T", is_guarded=False)

    assert sum(1 for _ in steps) == 10


def test_oversized_data_is_not_read_to_its_end() -> None:
    steps = read_batch(ONE * 10 * BATCH_MESSAGES_MAX, "", 91, b"\x01T", is_guarded=False)

    for _ in range(BATCH_MESSAGES_MAX // MESSAGES_PER_STEP):
        next(steps)

    with pytest.raises(RefusedPutError):
        next(steps)
