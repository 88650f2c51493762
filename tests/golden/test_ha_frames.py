"""The frames of a real pair 4.9.7, decoded and encoded again."""

from __future__ import annotations

import json
from pathlib import Path

from broker_core.formats.ha_frames import (
    HEADER_SIZE,
    ReportDecoder,
    decode_header,
    encode_header,
    encode_report,
)
from broker_core.formats.record import examine

SAID = [
    (sender, bytes.fromhex(data))
    for sender, data in map(
        json.loads, (Path(__file__).parent / "ha" / "pair-4.9.7.json").read_text().splitlines()
    )
]
FILE_SIZE = 1 << 30
BATCH_BYTES = 200


def connections() -> list[list[tuple[str, bytes]]]:
    found: list[list[tuple[str, bytes]]] = []
    for sender, data in SAID:
        if sender == "connect":
            found.append([])
        else:
            found[-1].append((sender, data))
    return found


def transfers(text: list[tuple[str, bytes]]) -> list[tuple[int, bytes]]:
    data = b"".join(piece for sender, piece in text if sender == "master")
    found = []
    position = 0
    while position < len(data):
        header = decode_header(data, position, FILE_SIZE)
        position += HEADER_SIZE
        found.append((header.commit_log_offset, data[position : position + header.size]))
        position += header.size
    assert position == len(data)
    return found


def test_a_masters_data_consists_of_adjacent_transfers() -> None:
    log = b""
    for text in connections():
        for offset, data in transfers(text):
            assert offset == len(log)
            assert len(data) <= BATCH_BYTES
            log += data

    bodies = []
    position = 0
    while position < len(log):
        head = examine(memoryview(log), position, len(log), position, check_crc=True)
        bodies.append(log[head.body_from : head.body_to])
        position += head.size
    assert bodies == [b"one", b"two" * 50, b"three", b"four"]


def test_a_master_sends_heartbeats_at_its_logs_end() -> None:
    for text in connections():
        found = transfers(text)
        assert found[-1][1] == b""
        assert sum(data == b"" for _, data in found) >= 2


def test_a_slave_first_requests_an_offset_and_then_reports_its_own() -> None:
    begin = 0
    for report in connections():
        assert report[0][0] == "slave", "a master waits for the first report"
        reports = [
            offset
            for decoder in [ReportDecoder()]
            for sender, data in report
            if sender == "slave"
            for offset in decoder.feed(data)
        ]
        assert reports[0] == begin
        assert reports == sorted(reports)
        last = transfers(report)[-1][0]
        assert reports[-1] == last
        begin = last
    assert begin > 0


def test_truncated_reports_are_detected() -> None:
    data = b"".join(piece for sender, piece in SAID if sender == "slave")
    whole = ReportDecoder().feed(data)
    decoder = ReportDecoder()

    assert [offset for byte in data for offset in decoder.feed(bytes((byte,)))] == whole


def test_the_encoders_give_the_recorded_bytes() -> None:
    for text in connections():
        master = b"".join(piece for sender, piece in text if sender == "master")
        slave = b"".join(piece for sender, piece in text if sender == "slave")

        assert master == b"".join(
            encode_header(offset, len(data)) + data for offset, data in transfers(text)
        )
        assert slave == b"".join(map(encode_report, ReportDecoder().feed(slave)))
