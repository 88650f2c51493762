from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from analytics.decoding import (
    COLUMN_TYPES,
    RECORD_SIZE_MAX,
    TIMESTAMP_MS_MAX,
    Damage,
    RecordDecoder,
    RowFilter,
    walk,
)
from analytics.schemas import DAMAGE, DAMAGE_COLUMN, MESSAGES
from broker_core.formats import record
from broker_core.message import ids, properties
from tests.analytics.store_builder import START_MS, V4_HOST, V6_HOST, StoreBuilder

if TYPE_CHECKING:
    import random
    from pathlib import Path

EVERYTHING = pa.schema(
    [(name, kind) for name, kind in COLUMN_TYPES.items() if name != DAMAGE_COLUMN]
)


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path, file_bytes=256 * 1024)


def decoded(builder: StoreBuilder, rows: RowFilter | None = None, schema: pa.Schema = EVERYTHING):
    buffer = np.frombuffer(builder.files[0], dtype=np.uint8)
    found = walk(buffer, 0, len(buffer))
    return RecordDecoder(schema, rows).decode(buffer, found.positions, 0)


def test_every_column_equals_what_the_one_by_one_decoder_says(
    builder: StoreBuilder, rng: random.Random
) -> None:
    for number in range(200):
        builder.put(
            rng.choice(["orders", "%RETRY%group", "z"]),
            queue_id=number % 16,
            body=rng.randbytes(rng.randrange(300)),
            properties=properties.encode({"KEYS": "k" * rng.randrange(20), "TAGS": "é"}).encode(),
            born_host=rng.choice([V4_HOST, V6_HOST]),
            store_host=rng.choice([V4_HOST, V6_HOST]),
            sys_flag=rng.choice([0, 0x301, 0x8]),
            flag=rng.randrange(-(2**31), 2**31),
            reconsume_times=rng.randrange(17),
            prepared_transaction_offset=rng.randrange(2**40),
        )

    batch, bad = decoded(builder)

    assert not bad
    data = bytes(builder.files[0][: builder.position])
    for row, message in zip(batch.to_pylist(), record.decode_all(data), strict=True):
        assert row["topic"] == message.topic
        assert row["queue_id"] == message.queue_id
        assert row["queue_offset"] == message.queue_offset
        assert row["commit_log_offset"] == message.commit_log_offset
        assert row["store_size"] == message.store_size
        assert row["flag"] == message.flag
        assert row["sys_flag"] == message.sys_flag
        assert row["reconsume_times"] == message.reconsume_times
        assert row["prepared_transaction_offset"] == message.prepared_transaction_offset
        assert row["body"] == message.body
        assert row["body_size"] == len(message.body)
        assert row["body_crc"] == message.body_crc
        assert properties.decode(row["properties"].decode()) == message.properties
        assert ids.host_text(row["born_host"]) == message.born_host
        assert ids.host_text(row["store_host"]) == message.store_host
        assert round(row["store_timestamp"].timestamp() * 1000) == message.store_timestamp
        assert round(row["born_timestamp"].timestamp() * 1000) == message.born_timestamp


def test_a_record_of_a_real_broker_is_read() -> None:
    # Written by RocketMQ 4.9.7: an op message of the transaction service.
    data = bytes.fromhex(
        "00000087daa320a774dbdf2100000000000000000000000000000000"
        "00000000000f711700000000000001a1fd5312057f00000100002e87"
        "000001a1fd5312097f00000100002e87000000000000000000000000"
        "00000001301b524d515f5359535f5452414e535f4f505f48414c465f"
        "544f5049430010"
    )
    data += b"WAIT\x01true\x02TAGS\x01d"
    buffer = np.frombuffer(data, dtype=np.uint8)

    batch, bad = RecordDecoder(EVERYTHING, RowFilter(include_system_topics=True)).decode(
        buffer, walk(buffer, 0, len(buffer)).positions, 1_011_991
    )

    assert not bad
    (row,) = batch.to_pylist()
    assert row["topic"] == "RMQ_SYS_TRANS_OP_HALF_TOPIC"
    assert (row["body"], row["body_crc"], row["store_size"]) == (b"0", 0x74DBDF21, 135)
    assert ids.host_text(row["store_host"]) == "127.0.0.1:11911"
    assert _store_ms(batch) == [1_795_251_442_185]


def test_a_record_of_the_second_magic_has_a_topic_size_of_two_bytes(builder: StoreBuilder) -> None:
    one = builder.put("t", properties=b"")
    two = builder.put("u")
    topic = b"%RETRY%" + b"g" * 150
    first = bytes(builder.files[0][: one.size])
    body_to = record.FIXED_V4_SIZE + len(one.body)
    wide = first[:body_to] + struct.pack(">h", len(topic)) + topic + struct.pack(">h", 0)
    wide = struct.pack(">ii", len(wide), record.MESSAGE_MAGIC_V2) + wide[8:]
    second = bytearray(builder.files[0][two.commit_log_offset : two.commit_log_offset + two.size])
    second[28:36] = struct.pack(">q", len(wide))
    builder.overwrite(0, wide + bytes(second))

    batch, bad = decoded(builder)

    assert not bad
    assert batch["topic"].to_pylist() == [topic.decode(), "u"]


def test_what_the_broker_keeps_for_itself_is_hidden_unless_asked_for(builder: StoreBuilder) -> None:
    hidden = [
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRACE_TOPIC",
        "rmq_sys_wheel_timer",
    ]
    for topic in [*hidden, "orders", "%DLQ%group"]:
        builder.put(topic)

    usual, _ = decoded(builder)
    all_, _ = decoded(builder, RowFilter(include_system_topics=True))

    assert usual["topic"].to_pylist() == ["orders", "%DLQ%group"]
    assert all_["topic"].to_pylist() == [*hidden, "orders", "%DLQ%group"]


def test_asking_for_a_system_topic_by_name_alone_shows_nothing(builder: StoreBuilder) -> None:
    builder.put("RMQ_SYS_TRANS_HALF_TOPIC")

    batch, _ = decoded(builder, RowFilter(topic="RMQ_SYS_TRANS_HALF_TOPIC"))

    assert batch.num_rows == 0


def test_times_are_half_open_and_topics_exact(builder: StoreBuilder) -> None:
    builder.put_many(20, topics=("orders", "orders2"))

    batch, _ = decoded(
        builder,
        RowFilter(topic="orders", from_ms=START_MS + 4000, to_ms=START_MS + 8000),
    )

    assert [one // 1000 for one in _store_ms(batch)] == [
        (START_MS + 4000) // 1000,
        (START_MS + 6000) // 1000,
    ]


def test_a_wrong_checksum_is_named_where_bodies_are_read(builder: StoreBuilder) -> None:
    builder.put_many(3)
    spoiled = builder.stored[1]
    builder.overwrite(spoiled.commit_log_offset + record.FIXED_V4_SIZE, b"X")

    with_body, bad = decoded(builder)
    without, unseen = decoded(builder, schema=pa.schema([("topic", pa.string())]))

    assert with_body.num_rows == 2
    assert [(one.position, one.size) for one in bad] == [(spoiled.commit_log_offset, spoiled.size)]
    assert "checksum" in bad[0].reason
    assert without.num_rows == 3
    assert not unseen


def test_a_record_that_states_another_place_is_not_believed(builder: StoreBuilder) -> None:
    builder.put_many(3)
    builder.overwrite(
        builder.stored[1].commit_log_offset + record.COMMIT_LOG_OFFSET_POSITION,
        struct.pack(">q", 7),
    )

    batch, bad = decoded(builder)

    assert batch.num_rows == 2
    assert "another commit log offset" in bad[0].reason


@pytest.mark.parametrize(
    ("part", "at", "content"),
    [
        ("body size", 84, struct.pack(">i", 7)),
        ("negative body size", 84, struct.pack(">i", -1)),
        ("huge body size", 84, struct.pack(">i", 2**31 - 1)),
        ("topic size", 94, b"\x05"),
        ("huge topic size", 94, b"\xff"),
        ("sys flag", 36, struct.pack(">i", 0x30)),
        ("properties size", 101, struct.pack(">h", -5)),
    ],
)
def test_parts_that_do_not_add_up_are_named(
    builder: StoreBuilder, part: str, at: int, content: bytes
) -> None:
    for _ in range(3):
        builder.put("orders", body=b"a body")
    builder.overwrite(builder.stored[2].commit_log_offset + at, content)
    buffer = np.frombuffer(bytes(builder.files[0][: builder.position]), dtype=np.uint8)

    batch, bad = RecordDecoder(EVERYTHING).decode(buffer, walk(buffer, 0, len(buffer)).positions, 0)

    assert batch.num_rows == 2, part
    assert [one.position for one in bad] == [builder.stored[2].commit_log_offset]
    assert "add up" in bad[0].reason


def test_a_topic_that_is_no_text_is_named(builder: StoreBuilder) -> None:
    builder.put("orders")
    builder.put("x", encoded_topic=b"\xff\xfe")

    batch, bad = decoded(builder)

    assert batch["topic"].to_pylist() == ["orders"]
    assert [one.reason for one in bad] == ["the topic is not text"]


@pytest.mark.parametrize("ms", [-1, TIMESTAMP_MS_MAX + 1, 2**62])
def test_a_store_timestamp_that_is_no_date_is_damage(builder: StoreBuilder, ms: int) -> None:
    builder.put(store_timestamp=ms)

    batch, bad = decoded(builder)

    assert batch.num_rows == 0
    assert "no date" in bad[0].reason


@pytest.mark.parametrize("ms", [-1, TIMESTAMP_MS_MAX + 1, -(2**63), 2**63 - 1])
def test_a_born_timestamp_that_is_no_date_is_null(builder: StoreBuilder, ms: int) -> None:
    builder.put(born_timestamp=ms)
    builder.put(born_timestamp=TIMESTAMP_MS_MAX)

    batch, bad = decoded(builder)

    assert not bad
    assert batch["born_timestamp"].is_null().to_pylist() == [True, False]


def test_an_empty_buffer_has_no_rows_and_every_column() -> None:
    batch, bad = RecordDecoder(EVERYTHING).decode(
        np.empty(0, dtype=np.uint8), np.empty(0, dtype=np.int64), 0
    )

    assert batch.num_rows == 0
    assert batch.schema == EVERYTHING
    assert not bad


@pytest.mark.parametrize("size", [0, record.OVERHEAD_V4 - 1, -5, RECORD_SIZE_MAX + 1])
def test_a_walk_ends_at_a_size_that_no_record_has(size: int) -> None:
    buffer = np.zeros(4096, dtype=np.uint8)
    buffer[:8] = np.frombuffer(struct.pack(">ii", size, record.MESSAGE_MAGIC), dtype=np.uint8)

    found = walk(buffer, 0, len(buffer))

    assert len(found.positions) == 0
    assert (found.stopped_at, found.size, found.magic) == (0, size, record.MESSAGE_MAGIC)


def test_a_damaged_range_is_a_row_with_nothing_else_in_it() -> None:
    kinds = {"topic": pa.string(), "damage": COLUMN_TYPES["damage"]}

    batch = RecordDecoder(pa.schema(list(kinds.items()))).damage_batch([Damage("f", 1, 9, "why")])

    assert batch.to_pylist() == [
        {
            "topic": None,
            "damage": {
                "file": "f",
                "commit_log_from": 1,
                "commit_log_to": 9,
                "reason": "why",
            },
        }
    ]


def test_spark_and_the_decoder_mean_the_same_columns() -> None:
    spark = {field.name: field.type for field in to_arrow_schema(MESSAGES, timezone="UTC")}
    damage = pa.struct(list(to_arrow_schema(DAMAGE, timezone="UTC")))

    assert {**spark, DAMAGE_COLUMN: damage} == COLUMN_TYPES
    assert [*spark, DAMAGE_COLUMN] == list(COLUMN_TYPES)


def _store_ms(batch: pa.RecordBatch) -> list[int]:
    return [round(moment.timestamp() * 1000) for moment in batch["store_timestamp"].to_pylist()]
