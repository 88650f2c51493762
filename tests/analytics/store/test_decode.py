from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from analytics.schemas import DAMAGE, DAMAGE_COLUMN, MESSAGES
from analytics.store.decode import (
    COLUMN_TYPES,
    TIMESTAMP_MS_MAX,
    CheckCrc,
    Damage,
    RecordDecoder,
    RowFilter,
)
from broker_core.formats import record
from broker_core.formats.record_columns import RecordBuffer, walk
from broker_core.message import properties
from broker_core.message.sys_flag import COMPRESSED_FLAG
from tests.analytics.store_builder import START_MS, V4_HOST, V6_HOST, StoreBuilder, Stored

if TYPE_CHECKING:
    import random
    from pathlib import Path

EVERYTHING = pa.schema(
    [(name, kind) for name, kind in COLUMN_TYPES.items() if name != DAMAGE_COLUMN]
)


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path, file_bytes=256 * 1024)


def decoded(
    builder: StoreBuilder,
    rows: RowFilter | None = None,
    schema: pa.Schema = EVERYTHING,
    check_crc: CheckCrc = CheckCrc.BODY,
    decompress: bool = False,
):
    buffer = RecordBuffer(builder.files[0])
    found = walk(buffer, 0, len(builder.files[0]))
    decoder = RecordDecoder(schema, rows, check_crc=check_crc, decompress=decompress)
    return decoder.decode(buffer, found.positions, 0)


def test_every_column_equals_the_one_by_one_decoders_result(
    builder: StoreBuilder, rng: random.Random
) -> None:
    for number in range(200):
        builder.put(
            rng.choice(["orders", "%RETRY%group", "z"]),
            queue_id=number % 16,
            body=rng.randbytes(rng.randrange(300)),
            properties=rng.choice(
                [b"", properties.encode({"KEYS": "a  b", "TAGS": "é", "UNIQ_KEY": "7F"}).encode()]
            ),
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
        assert dict(row["properties"]) == message.properties
        assert row["tags"] == message.properties.get("TAGS")
        assert row["uniq_key"] == message.properties.get("UNIQ_KEY")
        assert row["keys"] == (["a", "b"] if message.properties else None)
        assert row["born_host"] == message.born_host
        assert row["store_host"] == message.store_host
        assert round(row["store_timestamp"].timestamp() * 1000) == message.store_timestamp
        assert round(row["born_timestamp"].timestamp() * 1000) == message.born_timestamp


def test_a_real_brokers_record_is_read() -> None:
    # Written by RocketMQ 4.9.7: an op message of the transaction service.
    data = bytes.fromhex(
        "00000087daa320a774dbdf2100000000000000000000000000000000"
        "00000000000f711700000000000001a1fd5312057f00000100002e87"
        "000001a1fd5312097f00000100002e87000000000000000000000000"
        "00000001301b524d515f5359535f5452414e535f4f505f48414c465f"
        "544f5049430010"
    )
    data += b"WAIT\x01true\x02TAGS\x01d"
    buffer = RecordBuffer(memoryview(data))

    batch, bad = RecordDecoder(EVERYTHING, RowFilter(include_system_topics=True)).decode(
        buffer, walk(buffer, 0, len(data)).positions, 1_011_991
    )

    assert not bad
    (row,) = batch.to_pylist()
    assert row["topic"] == "RMQ_SYS_TRANS_OP_HALF_TOPIC"
    assert (row["body"], row["body_crc"], row["store_size"]) == (b"0", 0x74DBDF21, 135)
    assert row["store_host"] == "127.0.0.1:11911"
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


def test_the_brokers_own_entries_are_hidden_by_default(builder: StoreBuilder) -> None:
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

    batch, _ = decoded(builder, RowFilter(topics=frozenset({"RMQ_SYS_TRANS_HALF_TOPIC"})))

    assert batch.num_rows == 0


def test_times_are_half_open_and_topics_exact(builder: StoreBuilder) -> None:
    builder.put_many(20, topics=("orders", "orders2"))

    batch, _ = decoded(
        builder,
        RowFilter(topics=frozenset({"orders"}), from_ms=START_MS + 4000, to_ms=START_MS + 8000),
    )

    assert [one // 1000 for one in _store_ms(batch)] == [
        (START_MS + 4000) // 1000,
        (START_MS + 6000) // 1000,
    ]


def test_queues_are_distinguished(builder: StoreBuilder) -> None:
    builder.put_many(30)

    batch, _ = decoded(builder, RowFilter(queue_ids=frozenset({0, 2})))

    assert set(batch["queue_id"].to_pylist()) == {0, 2}
    assert batch.num_rows == 20


def test_bodies_are_decompressed_if_requested(builder: StoreBuilder) -> None:
    builder.put(body=zlib.compress(b"a body" * 100), sys_flag=COMPRESSED_FLAG)
    builder.put(body=b"plain")
    builder.put(body=b"no zlib", sys_flag=COMPRESSED_FLAG)
    schema = pa.schema([("body", pa.binary()), ("body_size", pa.int32())])

    as_stored, _ = decoded(builder, schema=schema)
    as_sent, _ = decoded(builder, schema=schema, decompress=True)

    assert as_stored["body"].to_pylist() == [one.body for one in builder.stored]
    assert as_sent["body"].to_pylist() == [b"a body" * 100, b"plain", None]
    assert as_sent["body_size"] == as_stored["body_size"]


def test_a_body_with_a_wrong_checksum_is_null_and_its_row_stays(builder: StoreBuilder) -> None:
    spoiled = _spoil_a_body(builder)

    batch, bad = decoded(builder)

    assert not bad
    assert batch["body"].to_pylist() == [
        None if one is spoiled else one.body for one in builder.stored
    ]


@pytest.mark.parametrize("check_crc", list(CheckCrc))
@pytest.mark.parametrize("columns", [["topic"], ["body"], ["topic", "body", "store_size"]])
def test_the_number_of_rows_does_not_depend_on_the_columns(
    builder: StoreBuilder, check_crc: CheckCrc, columns: list[str]
) -> None:
    spoiled = _spoil_a_body(builder)
    schema = pa.schema([(name, COLUMN_TYPES[name]) for name in columns])

    batch, bad = decoded(builder, schema=schema, check_crc=check_crc)

    is_damage = check_crc is CheckCrc.TRUE
    assert batch.num_rows == (2 if is_damage else 3)
    assert [(one.position, one.size) for one in bad] == (
        [(spoiled.commit_log_offset, spoiled.size)] if is_damage else []
    )
    assert all("checksum" in one.reason for one in bad)


def _spoil_a_body(builder: StoreBuilder) -> Stored:
    builder.put_many(3)
    spoiled = builder.stored[1]
    builder.overwrite(spoiled.commit_log_offset + record.FIXED_V4_SIZE, b"X")
    return spoiled


def test_a_record_with_a_wrong_offset_is_not_trusted(builder: StoreBuilder) -> None:
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
def test_inconsistent_parts_are_named(
    builder: StoreBuilder, part: str, at: int, content: bytes
) -> None:
    for _ in range(3):
        builder.put("orders", body=b"a body")
    builder.overwrite(builder.stored[2].commit_log_offset + at, content)
    buffer = RecordBuffer(builder.files[0][: builder.position])

    batch, bad = RecordDecoder(EVERYTHING).decode(
        buffer, walk(buffer, 0, builder.position).positions, 0
    )

    assert batch.num_rows == 2, part
    assert [one.position for one in bad] == [builder.stored[2].commit_log_offset]
    assert "add up" in bad[0].reason


def test_a_non_text_topic_is_named(builder: StoreBuilder) -> None:
    builder.put("orders")
    builder.put("x", encoded_topic=b"\xff\xfe")

    batch, bad = decoded(builder)

    assert batch["topic"].to_pylist() == ["orders"]
    assert [one.reason for one in bad] == ["the topic isn't text"]


@pytest.mark.parametrize("ms", [-1, TIMESTAMP_MS_MAX + 1, 2**62])
def test_an_invalid_store_timestamp_is_damage(builder: StoreBuilder, ms: int) -> None:
    builder.put(store_timestamp=ms)

    batch, bad = decoded(builder)

    assert batch.num_rows == 0
    assert "isn't a date" in bad[0].reason


@pytest.mark.parametrize("ms", [-1, TIMESTAMP_MS_MAX + 1, -(2**63), 2**63 - 1])
def test_an_invalid_born_timestamp_is_null(builder: StoreBuilder, ms: int) -> None:
    builder.put(born_timestamp=ms)
    builder.put(born_timestamp=TIMESTAMP_MS_MAX)

    batch, bad = decoded(builder)

    assert not bad
    assert batch["born_timestamp"].is_null().to_pylist() == [True, False]


def test_an_empty_buffer_has_no_rows_and_every_column() -> None:
    batch, bad = RecordDecoder(EVERYTHING).decode(
        RecordBuffer(bytearray()), np.empty(0, dtype=np.int64), 0
    )

    assert batch.num_rows == 0
    assert batch.schema == EVERYTHING
    assert not bad


def test_a_damaged_range_is_a_row_without_other_values() -> None:
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


def test_spark_and_the_decoder_give_the_same_columns() -> None:
    spark = {field.name: field.type for field in to_arrow_schema(MESSAGES, timezone="UTC")}
    damage = pa.struct(list(to_arrow_schema(DAMAGE, timezone="UTC")))

    assert {**spark, DAMAGE_COLUMN: damage} == COLUMN_TYPES
    assert [*spark, DAMAGE_COLUMN] == list(COLUMN_TYPES)


def _store_ms(batch: pa.RecordBatch) -> list[int]:
    return [round(moment.timestamp() * 1000) for moment in batch["store_timestamp"].to_pylist()]
