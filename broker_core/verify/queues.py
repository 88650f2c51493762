"""Match records with ConsumeQueue units, and units with their extensions."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from broker_core.formats.cq_ext_unit import (
    ADDRESS_BASE,
    ADDRESS_MAX,
    END_SIZE,
    HEAD as EXT_HEAD,
    HEAD_SIZE as EXT_HEAD_SIZE,
)
from broker_core.formats.cq_unit import FILLER_SIZE, UNIT, UNIT_SIZE
from broker_core.message.names import (
    RMQ_SYS_SCHEDULE_TOPIC,
    RMQ_SYS_TIMER_TOPIC,
    TIMER_QUEUE_ID,
    is_legal_name,
    is_system_topic,
)
from broker_core.verify.files import Files
from broker_core.verify.records import java_hash

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from broker_core.verify.documents import KnownTopics
    from broker_core.verify.log import Log
    from broker_core.verify.records import Record
    from broker_core.verify.report import Report

    QueueKey = tuple[str, int]


class QueueCheck:
    """The ConsumeQueues and their extensions.

    Attributes:
        ends: (topic, queue_id) -> the queue_offset after the last record, once the log is checked.
    """

    def __init__(self, root: Path, topics: KnownTopics, report: Report) -> None:
        self.ends: dict[QueueKey, int] = {}
        self._root = root
        self._topics = topics
        self._report = report
        self._queues = _open_files(root / "consumequeue", report)
        self._extensions = _open_files(root / "consumequeue_ext", report)
        self._matched: Counter[QueueKey] = Counter()
        self._without_unit: dict[QueueKey, int] = {}

    def check_place(self, record: Record, path: Path) -> None:
        """Check that a record has a unit and follows the queue's last record without a gap."""
        if record.sys_flag & 0xC in {0x4, 0xC}:
            return  # a half message, or the mark of a rollback
        key = (record.topic, record.queue_id)
        self._check_number(key, record, path)
        unit = self._unit(key, record.queue_offset)
        if unit is None and self._is_deleted(record):
            self._report.deleted += 1
            return
        if unit is None and not self._report.clean_exit:
            self._report.behind["units"] += 1
            self._without_unit.setdefault(key, record.offset)
            return
        if key in self._without_unit:
            offset = self._without_unit.pop(key)
            self._report.add(path, f"the record at {offset} has no unit, later ones do")
        if unit is None or unit[:2] != (record.offset, record.size):
            if unit is None or unit[0] < record.offset or unit[1] == FILLER_SIZE:
                self._report.add(
                    path, f"the record at {record.offset} has no unit in its queue: {unit}"
                )
            return
        self._matched[key] += 1
        self._check_code(key, unit[2], record, path)

    def _check_number(self, key: QueueKey, record: Record, path: Path) -> None:
        expected = self.ends.get(key, record.queue_offset)
        if record.queue_offset != expected:
            # A topic that was deleted and created again starts at 0 again.
            if record.queue_offset == 0:
                self._matched.pop(key, None)
            else:
                self._report.add(
                    path,
                    f"the record at {record.offset} has queue offset {record.queue_offset} in "
                    f"{record.topic}/{record.queue_id}, where {expected} is next",
                )
        self.ends[key] = record.queue_offset + 1

    def _check_code(self, key: QueueKey, code: int, record: Record, path: Path) -> None:
        """Compare the tags code of a unit, or of its extension, with the record's tags."""
        if code <= ADDRESS_MAX:
            extension = self._extension(key, code)
            if extension is None:
                self._report.add(
                    path, f"the unit of the record at {record.offset} has no extension at {code}"
                )
                return
            code, store_timestamp, _ = extension
            if store_timestamp != record.store_timestamp:
                self._report.add(
                    path,
                    f"the extension of the record at {record.offset} has another store timestamp",
                )
        tags = record.properties.get("TAGS", "")
        if (record.topic, record.queue_id) == (RMQ_SYS_TIMER_TOPIC, TIMER_QUEUE_ID):
            # A RocketMQ broker stores the hash of the tags here, and doesn't read it.
            out_ms = record.properties.get("TIMER_OUT_MS", "")
            if str(code) != out_ms and code != java_hash(tags):
                self._report.add(
                    path, f"the unit of the record at {record.offset} has another delivery time"
                )
            return
        is_delayed = record.topic == RMQ_SYS_SCHEDULE_TOPIC and "DELAY" in record.properties
        if code != java_hash(tags) if not is_delayed else code < record.store_timestamp:
            self._report.add(
                path, f"the unit of the record at {record.offset} has another tags code"
            )

    def check(self, log: Log) -> None:
        """Compare the number of units in each queue with the number of records that matched."""
        units = fillers = 0
        for key, files in self._queues.items():
            living = readable = 0
            deleted_before = self._topics.deleted_before.get(key[0], 0)
            for start in sorted(files.maps):
                for commit_log_offset, size, _ in UNIT.iter_unpack(files.maps[start]):
                    if size <= 0:
                        break
                    units += 1
                    if size == FILLER_SIZE:
                        fillers += 1
                    elif commit_log_offset >= log.end and not self._report.clean_exit:
                        self._report.ahead["units"] += 1
                    elif commit_log_offset >= log.begin:
                        living += 1
                        readable += commit_log_offset >= deleted_before
            if living != self._matched[key]:
                topic, queue_id = key
                self._report.add(
                    self._root / "consumequeue" / topic / str(queue_id),
                    f"{living} units, but {self._matched[key]} records with a unit here",
                )
            self._note_unreachable(key, readable)
        self._report.consume_queues = {
            "queues": len(self._queues),
            "units": units,
            "fillers": fillers,
            "extensions": self._check_extensions(log),
        }

    def _note_unreachable(self, key: QueueKey, messages: int) -> None:
        """Count a topic's messages if topics.json lacks it and it isn't a system topic."""
        topic = key[0]
        names = self._topics.names or ()
        if messages and topic not in names and not is_system_topic(topic):
            found = self._report.unreachable.setdefault(topic, {"queues": 0, "messages": 0})
            found["queues"] += 1
            found["messages"] += messages

    def _is_deleted(self, record: Record) -> bool:
        """Return whether a record belongs to a deleted topic, whose records stay in the log."""
        if record.offset < self._topics.deleted_before.get(record.topic, 0):
            return True
        names = self._topics.names
        return (
            names is not None
            and record.topic not in names
            and not any(topic == record.topic for topic, _ in self._queues)
        )

    def _unit(self, key: QueueKey, queue_offset: int) -> tuple[int, int, int] | None:
        files = self._queues.get(key)
        place = None if files is None else files.at(queue_offset * UNIT_SIZE)
        if place is None:
            return None
        unit = UNIT.unpack_from(place[0], place[1])
        return unit if unit[1] > 0 else None

    def _extension(self, key: QueueKey, address: int) -> tuple[int, int, bytes] | None:
        """Return (tags code, store timestamp, bitmap) of the extension at an address."""
        files = self._extensions.get(key)
        place = None if files is None else files.at(address - ADDRESS_BASE)
        if place is None or len(place[0]) - place[1] < EXT_HEAD_SIZE + END_SIZE:
            return None
        data, position, _ = place
        size, tags_code, store_timestamp, bit_map_size = EXT_HEAD.unpack_from(data, position)
        start = position + EXT_HEAD_SIZE
        end = start + max(bit_map_size, 0)
        if size != end - position or end > len(data) - END_SIZE:
            return None
        return tags_code, store_timestamp, bytes(data[start:end])

    def _check_extensions(self, log: Log) -> int:
        """Check that the addresses in a queue's units rise and lead to extensions; count these.

        RocketMQ leaves extensions that no unit leads to, so they aren't reported.
        """
        count = 0
        for key, files in self._extensions.items():
            starts: list[int] = []
            for file_from in sorted(files.maps):
                starts += self._walk_extensions(files, file_from)
            count += len(starts)
            known = set(starts)
            path = self._root / "consumequeue_ext" / key[0] / str(key[1])
            last = -1
            for offset in self._extension_offsets(key, log):
                if offset >= min(files.maps, default=0):
                    if offset not in known:
                        self._report.add(
                            path, f"a unit leads to {offset}, where no extension begins"
                        )
                    elif offset <= last:
                        self._report.add(
                            path, f"a unit leads to {offset}, the unit before it to {last}"
                        )
                    last = max(last, offset)
        return count

    def _extension_offsets(self, key: QueueKey, log: Log) -> Iterator[int]:
        """Yield the extension offsets of the units of undamaged messages, in order."""
        queue = self._queues.get(key)
        for _, data in sorted(queue.maps.items()) if queue is not None else ():
            for offset, size, code in UNIT.iter_unpack(data):
                if size <= 0:
                    break
                is_damaged = any(low <= offset < high for low, high in log.damaged)
                if code <= ADDRESS_MAX and not is_damaged:
                    yield code - ADDRESS_BASE

    def _walk_extensions(self, files: Files, file_from: int) -> list[int]:
        """Return where a file's extensions begin, up to its end, its end mark or damage.

        Zeros also end a file, because a power cut may have lost the mark.
        """
        data = files.maps[file_from]
        starts: list[int] = []
        position = 0
        while position + EXT_HEAD_SIZE <= len(data) - END_SIZE:
            size, _, _, bit_map_size = EXT_HEAD.unpack_from(data, position)
            if size <= 0:
                break
            if size != EXT_HEAD_SIZE + max(bit_map_size, 0):
                self._report.add(files.paths[file_from], f"no extension at {position}")
                break
            starts.append(file_from + position)
            position += size
        return starts


def _open_files(root: Path, report: Report) -> dict[QueueKey, Files]:
    table = {}
    for topic in sorted(root.iterdir()) if root.is_dir() else ():
        if not is_legal_name(topic.name) or not topic.is_dir():
            report.ignore(topic)
            continue
        for directory in sorted(topic.iterdir()):
            if not re.fullmatch(r"[0-9]+", directory.name):
                report.ignore(directory)
            elif not directory.is_dir():
                report.add(directory, "is a file where a queue has its directory")
            else:
                table[topic.name, int(directory.name)] = Files(directory, report)
    return table
