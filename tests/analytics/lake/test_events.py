"""bronze.events: each event of the log once, despite kills and errors in between."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from analytics.lake.maintenance import maintain
from analytics.lake.repair import forget, rebuild, verify
from analytics.lake.rewriting import stored_files_of
from analytics.lake.tables import EVENTS
from analytics.lake.writer import ArrowWriter
from broker_core.message import names
from broker_core.message.properties import encode
from broker_core.message.sys_flag import TRANSACTION_COMMIT_TYPE, TRANSACTION_PREPARED_TYPE
from tests.analytics.lake.lakes import BROKER, Lake
from tests.analytics.store_builder import START_MS, StoreBuilder

if TYPE_CHECKING:
    from pathlib import Path

DAY_MS = 86_400_000
FIRST_DAY = datetime.fromtimestamp(START_MS / 1000, UTC).date()
FAR = FIRST_DAY + timedelta(days=9)
RETRY, DEAD = names.retry_topic("shop"), names.dlq_topic("shop")
SAID = "event, topic, consumer_group, producer_group, uniq_key, delay_level, half_queue_offset"
EACH = [
    ("delay", "orders", None, None, "U1", 3, None),
    ("delay", RETRY, None, None, "U1", 4, None),
    ("retry", "orders", "shop", None, "U1", None, None),
    ("dead_letter", "orders", "shop", None, "U1", None, None),
    ("half", "bills", None, "tills", "U2", None, 0),
    ("check", "bills", None, "tills", "U2", None, 1),
    ("ended", None, None, None, None, None, 0),
    ("ended", None, None, None, None, None, 1),
    ("commit", "bills", None, "tills", "U2", None, None),
    ("given_up", None, None, None, "U3", None, None),
]


def encoded_properties(**properties: str) -> bytes:
    return encode(properties).encode()


def put_events(builder: StoreBuilder, stored: int = START_MS) -> None:
    """Put one event of each kind among ordinary messages."""
    parked = names.RMQ_SYS_SCHEDULE_TOPIC
    half, ended = names.RMQ_SYS_TRANS_HALF_TOPIC, names.RMQ_SYS_TRANS_OP_HALF_TOPIC
    of_orders = encoded_properties(REAL_TOPIC="orders", UNIQ_KEY="U1")
    of_retry = encoded_properties(REAL_TOPIC=RETRY, UNIQ_KEY="U1")
    failed = encoded_properties(RETRY_TOPIC="orders", UNIQ_KEY="U1", KEYS="k1")
    begun = encoded_properties(REAL_TOPIC="bills", UNIQ_KEY="U2", PGROUP="tills")
    checked = encoded_properties(
        REAL_TOPIC="bills", UNIQ_KEY="U2", PGROUP="tills", TRANSACTION_CHECK_TIMES="1"
    )
    builder.put("orders", store_timestamp=stored)
    builder.put(parked, queue_id=2, properties=of_orders, store_timestamp=stored)
    builder.put(parked, queue_id=3, properties=of_retry, store_timestamp=stored)
    builder.put(RETRY, properties=failed, store_timestamp=stored)
    builder.put(DEAD, properties=failed, store_timestamp=stored)
    for text in (begun, checked):
        flag = TRANSACTION_PREPARED_TYPE
        builder.put(half, properties=text, sys_flag=flag, store_timestamp=stored)
    builder.put(ended, body=b"0,1,rubbish,", properties=b"TAGS\x01d", store_timestamp=stored)
    builder.put("bills", properties=begun, sys_flag=TRANSACTION_COMMIT_TYPE, store_timestamp=stored)
    given_up = names.RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC
    builder.put(given_up, properties=encoded_properties(UNIQ_KEY="U3"), store_timestamp=stored)
    builder.put("orders", store_timestamp=stored)


def events_in(lake: Lake, columns: str = SAID) -> list[tuple[Any, ...]]:
    return lake.query(
        f"SELECT {columns} FROM bronze.events ORDER BY commit_log_offset, half_queue_offset"
    )


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    builder = StoreBuilder(tmp_path / "store")
    put_events(builder)
    return builder


def lake_of(builder: StoreBuilder, *, batch_bytes: int = 1 << 26) -> Lake:
    builder.write()
    return Lake(builder.root.parent / "lake", builder.root, batch_bytes=batch_bytes)


@pytest.mark.parametrize("batch_bytes", [1, 700, 1 << 26])
def test_each_event_is_present_once(builder: StoreBuilder, batch_bytes: int) -> None:
    lake = lake_of(builder, batch_bytes=batch_bytes)

    lake.take_all()

    assert events_in(lake) == EACH
    assert {row[0] for row in events_in(lake, "broker")} == {BROKER}
    assert verify(lake.place, lake.source).is_equal


def test_a_repeated_batch_writes_no_event_twice(builder: StoreBuilder) -> None:
    class KilledError(Exception):
        pass

    def killed(step: str) -> None:
        if step == "events noted":
            raise KilledError

    lake = lake_of(builder)
    dying = type(lake.ingest)(lake.place, lake.source, observer=killed)
    with pytest.raises(KilledError):
        dying.batch()
    before = events_in(lake)
    put_events(builder)
    builder.write()

    lake.take_all()

    assert before == EACH
    assert len(events_in(lake)) == 2 * len(EACH)
    assert verify(lake.place, lake.source).is_equal


def test_a_rebuild_adds_the_events_of_the_new_log(builder: StoreBuilder) -> None:
    lake = lake_of(builder)
    lake.take_all()
    other = StoreBuilder(builder.root)
    other.put("orders")
    put_events(other, START_MS + 1)
    other.write()

    rebuild(lake.place, lake.source)
    between = events_in(lake)
    lake.take_all()

    assert between == []
    assert events_in(lake) == EACH
    assert verify(lake.place, lake.source).is_equal


def test_verify_finds_missing_events(builder: StoreBuilder) -> None:
    lake = lake_of(builder)
    lake.take_all()
    (file,) = stored_files_of(EVENTS.existing(lake.place))
    EVENTS.replace(lake.place, [], [file])

    found = verify(lake.place, lake.source)

    assert found.events == len(EACH)
    assert not found.is_equal


def test_past_days_are_one_file_and_are_dropped_with_their_messages(builder: StoreBuilder) -> None:
    put_events(builder, START_MS + 5 * DAY_MS)
    lake = lake_of(builder, batch_bytes=700)
    lake.take_all()
    many = len(stored_files_of(EVENTS.existing(lake.place)))

    maintain(lake.place, FAR, ArrowWriter(), bronze_days=6)

    assert many > 2
    (file,) = stored_files_of(EVENTS.existing(lake.place))
    assert file.day == FIRST_DAY + timedelta(days=5)
    assert [row[0] for row in events_in(lake)] == [row[0] for row in EACH]
    assert verify(lake.place, lake.source).is_equal


@pytest.mark.parametrize("key", ["k1", "U1"])
def test_an_erased_key_is_in_no_event_and_does_not_come_back(
    builder: StoreBuilder, key: str
) -> None:
    lake = lake_of(builder)
    lake.take_all()

    forget(lake.place, key)
    kept = events_in(lake, "event, uniq_key")
    assert verify(lake.place, lake.source).is_equal
    rebuild(lake.place, lake.source)
    lake.take_all()

    expected = [(row[0], None if row[4] == "U1" else row[4]) for row in EACH]
    assert kept == expected
    assert events_in(lake, "event, uniq_key") == expected
    for path in lake.directory.rglob("bronze/events/**/*.parquet"):
        assert b"U1" not in path.read_bytes()


def test_a_log_without_events_costs_no_commit(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store").put_many(50)
    lake = lake_of(builder, batch_bytes=2000)

    lake.take_all()

    assert EVENTS.existing(lake.place).version() == 0
