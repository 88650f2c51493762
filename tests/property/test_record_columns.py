"""Reading records in columns equals `record.examine` for each record, whatever is damaged."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING
from unittest import mock

from hypothesis import given, strategies as st

from broker_core.errors import CorruptRecordError
from broker_core.formats import record
from broker_core.formats.record_columns import HEADS, RecordBuffer, RecordColumns, walk
from broker_core.message import properties as message_properties
from broker_core.message.ids import host_bytes

if TYPE_CHECKING:
    from broker_core.formats.record import RecordHead

HOSTS = st.sampled_from([host_bytes("127.0.0.1", 10911), host_bytes("2001:db8::7", 10911)])
INT4 = st.integers(-(2**31), 2**31 - 1)
INT8 = st.integers(-(2**63), 2**63 - 1)
HEAD_NAMES = tuple(HEADS.names or ())
AFTER_HOSTS = struct.Struct(">iq")
PLACES = ("store_timestamp", "body_from", "body_to", "topic_from", "topic_to", "properties_from")


@st.composite
def logs(draw: st.DrawFn) -> bytearray:
    """Consecutive records, as a broker writes them."""
    log = bytearray()
    for _ in range(draw(st.integers(0, 6))):
        room = bytearray(2048)
        size = record.encode_into(
            room,
            0,
            topic=draw(st.binary(max_size=127)),
            queue_id=draw(INT4),
            queue_offset=draw(INT8),
            commit_log_offset=len(log),
            body=draw(st.binary(max_size=200)),
            properties=message_properties.encode({"KEYS": draw(st.text(max_size=9))}).encode(),
            flag=draw(INT4),
            sys_flag=draw(st.integers(0, 15)),
            born_timestamp=draw(INT8),
            born_host=draw(HOSTS),
            store_timestamp=draw(INT8),
            store_host=draw(HOSTS),
            reconsume_times=draw(INT4),
            prepared_transaction_offset=draw(INT8),
        )
        if draw(st.booleans()):
            # The second magic reads two bytes for the topic's size: rarely valid, always the same.
            record.BLANK.pack_into(room, 0, size, record.MESSAGE_MAGIC_V2)
        log += room[:size]
    return log


DAMAGES = st.lists(st.tuples(st.integers(0, 2**20), st.binary(min_size=1, max_size=9)), max_size=4)


def examined(log: bytearray, position: int, limit: int) -> RecordHead | None:
    """Return the one-by-one reader's result, without checksums of bodies."""
    try:
        return record.examine(memoryview(log), position, limit, None, check_crc=False)
    except CorruptRecordError:
        return None


@given(
    log=logs(),
    damages=DAMAGES,
    torn=st.integers(0, 200),
    # How many records are followed one by one before the others are searched at once.
    stepped=st.sampled_from([1, 2, 64]),
)
def test_columns_equal_the_record_by_record_reader(
    log: bytearray, damages: list[tuple[int, bytes]], torn: int, stepped: int
) -> None:
    for at, content in damages:
        if log:
            start = at % len(log)
            log[start : start + len(content)] = content[: len(log) - start]
    limit = max(0, len(log) - torn)
    buffer = RecordBuffer(log)

    with mock.patch("broker_core.formats.record_columns.STEPPED_FIRST", stepped):
        found = walk(buffer, 0, limit)
    rows = RecordColumns(buffer, found.positions)

    position = 0
    for row, start in enumerate(found.positions.tolist()):
        head = examined(log, start, limit)
        assert start == position
        assert bool(rows.is_whole[row]) == (head is not None)
        if head is not None:
            for name in (*HEAD_NAMES, *PLACES):
                assert rows[name][row] == getattr(head, name), name
            assert rows["end"][row] == head.properties_to
            reconsume_times, prepared = AFTER_HOSTS.unpack_from(log, head.body_from - 16)
            assert rows["reconsume_times"][row] == reconsume_times
            assert rows["prepared_transaction_offset"][row] == prepared
        position = int(rows["end"][row])
    # The walk ends where no record has a fitting size, so it skips no complete one.
    head = examined(log, found.stopped_at, limit)
    assert found.stopped_at == position
    assert head is None or head.is_blank
