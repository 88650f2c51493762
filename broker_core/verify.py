"""An independent reader of a store directory: is everything in it what it should be?

It shares the format tables with the store and no other code, so that a mistake of the one is seen
by the other. It opens files read-only, takes no lock, and works on a store of Apache RocketMQ as
well, on a replica's, on one that is in use, and on a copy of such a one.

Of a store that was not stopped (`abort` is there) the end of the log is taken down first. Units,
index entries and consumer offsets of messages behind it are ahead, messages at a queue's end
without units are behind, and bytes behind the last record are a torn tail: a start makes all that
good, and none of it is a problem.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from broker_core.formats.checkpoint import decode as decode_checkpoint
from broker_core.formats.cq_ext_unit import (
    ADDRESS_BASE,
    ADDRESS_MAX,
    END_SIZE,
    HEAD as EXT_HEAD,
    HEAD_SIZE as EXT_HEAD_SIZE,
)
from broker_core.formats.cq_unit import FILLER_SIZE, UNIT, UNIT_SIZE
from broker_core.formats.index_entry import ENTRY, ENTRY_SIZE, HEADER, HEADER_SIZE, SLOT, SLOT_SIZE
from broker_core.formats.record import (
    BLANK_MAGIC,
    CRC_MASK,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_BYTES,
    MESSAGE_MAGIC_V2,
)
from broker_core.message.names import RMQ_SYS_SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROBLEMS_MAX = 1000
CONFIG_NAMES = (
    "topics.json",
    "subscriptionGroup.json",
    "consumerOffset.json",
    "delayOffset.json",
    "consumerFilter.json",
)
GUARD_SIZE = 20
_GUARD = re.compile(rb"__CRC32#\x01([0-9]{10})\x02")
_NUMBER_KEY = re.compile(r'"(?:\\.|[^"\\])*"|([{,]\s*)(-?\d+)(\s*:)')


class _Record(NamedTuple):
    """A readable record."""

    offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp: int
    properties: dict[str, str]


@dataclass
class Report:
    """What was found; `problems` are in words, the first thousand of them."""

    store: str
    problems: list[str] = field(default_factory=list)
    problem_count: int = 0
    commit_log: dict[str, Any] = field(default_factory=dict)
    consume_queues: dict[str, Any] = field(default_factory=dict)
    index: dict[str, Any] = field(default_factory=dict)
    checkpoint: dict[str, int] = field(default_factory=dict)
    configuration: dict[str, str] = field(default_factory=dict)
    clean_exit: bool = True
    deleted: int = 0
    ahead: Counter[str] = field(default_factory=Counter)
    behind: Counter[str] = field(default_factory=Counter)

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return self.problem_count == 0

    def add(self, where: Path, what: str) -> None:
        """Take down something that is wrong."""
        self.problem_count += 1
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(f"{where}: {what}")

    def as_json(self) -> str:
        """Return the report for people and programs."""
        return json.dumps(
            {
                "store": self.store,
                "sound": self.is_sound,
                "cleanExit": self.clean_exit,
                "commitLog": self.commit_log,
                "consumeQueues": self.consume_queues,
                "index": self.index,
                "checkpoint": self.checkpoint,
                "configuration": self.configuration,
                "recordsOfDeletedTopics": self.deleted,
                "ahead": self.ahead,
                "behind": self.behind,
                "problemCount": self.problem_count,
                "problems": self.problems,
            },
            indent=2,
        )


class _Files:
    """Files of one size, side by side, as one range of bytes."""

    def __init__(self, directory: Path, report: Report) -> None:
        self.size = 0
        self.maps: dict[int, mmap.mmap | bytes] = {}
        self.paths: dict[int, Path] = {}
        for path in sorted(directory.iterdir()) if directory.is_dir() else ():
            if not re.fullmatch(r"[0-9]{20}", path.name):
                report.add(path, "does not belong here")
                continue
            try:
                opened = path.open("rb")
            except FileNotFoundError:
                continue  # it expired while we looked
            with opened as file:
                size = os.fstat(file.fileno()).st_size
                if size == 0:
                    if report.clean_exit:
                        report.add(path, "is empty")
                    continue
                self.size = self.size or size
                if size != self.size:
                    report.add(path, f"has {size} bytes, others have {self.size}")
                    continue
                start = int(path.name)
                if self.maps and start != max(self.maps) + size:
                    report.add(path, "a file is missing before this one")
                self.maps[start] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                self.paths[start] = path

    def at(self, offset: int) -> tuple[mmap.mmap | bytes, int, Path] | None:
        """Return (the bytes of the file, the position in it, its path) for an offset."""
        if not self.size or offset < 0:
            return None
        first = min(self.maps)
        start = first + (offset - first) // self.size * self.size
        found = self.maps.get(start)
        return None if found is None else (found, offset - start, self.paths[start])


class Verifier:
    """One run over one store directory."""

    def __init__(self, root: Path, commit_log: Path | None = None) -> None:
        self._root = root
        self._report = Report(str(root), clean_exit=not (root / "abort").exists())
        self._log = _Files(commit_log or root / "commitlog", self._report)
        self._queues: dict[tuple[str, int], _Files] = {}
        self._extensions: dict[tuple[str, int], _Files] = {}
        self._matched: Counter[tuple[str, int]] = Counter()
        self._next: dict[tuple[str, int], int] = {}
        self._end = 0
        self._limit = 0
        self._topics: set[str] | None = None
        self._deleted: dict[str, int] = {}
        self._without_unit: dict[tuple[str, int], int] = {}

    def run(self) -> Report:
        """Check everything; return what was found."""
        report = self._report
        self._limit = self._find_limit()
        self._read_topics()
        self._open_queues()
        self._check_log()
        self._check_queues()
        self._check_index()
        path = self._root / "checkpoint"
        if path.exists():
            page = decode_checkpoint(path.read_bytes())
            report.checkpoint = page._asdict()
        self._check_configuration()
        return report

    # -- the log

    def _find_limit(self) -> int:
        """Return where the log ends now, or a file of it with something unreadable in it."""
        offset = min(self._log.maps, default=0)
        while (place := self._log.at(offset)) is not None:
            data, position, _ = place
            size = _int(data, position, 4) if len(data) - position >= 8 else 0
            magic = _int(data, position + 4, 4) if size else 0
            if magic not in {MESSAGE_MAGIC, MESSAGE_MAGIC_V2, BLANK_MAGIC} or size <= 0:
                following = self._find_next(offset + 1)
                if following is None:
                    return offset
                offset = following
            else:
                offset += size
        return offset

    def _check_log(self) -> None:
        records = blanks = size = 0
        damaged: list[dict[str, object]] = []
        first_timestamp = last_timestamp = 0
        offset = min(self._log.maps, default=0)
        begin = offset
        self._end = offset
        while offset < self._limit and (place := self._log.at(offset)) is not None:
            data, position, path = place
            found = self._read(data, position, offset)
            if isinstance(found, str):
                following = self._find_next(offset + 1)
                if following is None:
                    break
                damaged.append({"from": offset, "to": following, "reason": found})
                self._report.add(path, f"damaged from {offset} to {following}: {found}")
                offset = following
            elif isinstance(found, int):
                blanks += 1
                offset += found
                self._end = offset
            else:
                records += 1
                size += found.size
                first_timestamp = first_timestamp or found.store_timestamp
                if found.store_timestamp < last_timestamp:
                    self._report.add(path, f"the record at {offset} is older than the one before")
                last_timestamp = max(last_timestamp, found.store_timestamp)
                self._check_place(found, path)
                offset += found.size
                self._end = offset
        self._check_tail()
        self._report.commit_log = {
            "files": len(self._log.maps),
            "fileSize": self._log.size,
            "minOffset": begin,
            "maxOffset": self._end,
            "records": records,
            "recordBytes": size,
            "blankRecords": blanks,
            "firstStoreTimestamp": first_timestamp,
            "lastStoreTimestamp": last_timestamp,
            "damaged": damaged,
        }

    def _read(self, data: mmap.mmap | bytes, position: int, offset: int) -> _Record | int | str:
        """Return a record, or a blank record's size, or what is wrong."""
        left = len(data) - position
        if left < 8:
            return "the file ends without a blank record"
        size = _int(data, position, 4)
        magic = _int(data, position + 4, 4)
        if magic == BLANK_MAGIC:
            return size if size == left else f"a blank record of {size} bytes where {left} are left"
        if magic not in {MESSAGE_MAGIC, MESSAGE_MAGIC_V2}:
            return "nothing written" if size == magic == 0 else f"magic code {magic}"
        if not 91 <= size <= left:
            return f"size {size} does not fit"
        record = bytes(data[position : position + size])
        try:
            return _parse(record, offset, 1 if magic == MESSAGE_MAGIC else 2)
        except (ValueError, IndexError) as error:
            return str(error)

    def _find_next(self, offset: int) -> int | None:
        while (place := self._log.at(offset)) is not None:
            data, position, _ = place
            start = offset - position
            at = data.find(MESSAGE_MAGIC_BYTES, position)
            while at >= 0:
                if at >= 4 and isinstance(self._read(data, at - 4, start + at - 4), _Record):
                    return start + at - 4
                at = data.find(MESSAGE_MAGIC_BYTES, at + 1)
            offset = start + self._log.size
        return None

    def _check_tail(self) -> None:
        """Behind the last record all must be zeros: or the end cannot be told from damage."""
        place = self._log.at(self._end)
        if place is None or not self._report.clean_exit:
            return
        data, position, path = place
        if any(data[position : position + 8]):
            self._report.add(path, f"a torn record at {position}")

    def _is_deleted(self, record: _Record) -> bool:
        """Tell whether a record is left of a topic that was deleted: the log keeps it."""
        if record.offset < self._deleted.get(record.topic, 0):
            return True
        return (
            self._topics is not None
            and record.topic not in self._topics
            and not any(topic == record.topic for topic, _ in self._queues)
        )

    def _read_topics(self) -> None:
        """Learn which topics there are, and which were deleted (by a broker of ours)."""
        try:
            text = (self._root / "config" / "topics.json").read_text("utf-8")
            self._topics = set(json.loads(_with_quoted_keys(text))["topicConfigTable"])
        except (OSError, ValueError, KeyError, TypeError):
            self._topics = None
        try:
            text = (self._root / "deletedTopics.json").read_text("utf-8")
            self._deleted = dict(json.loads(text)["deletedBefore"])
        except (OSError, ValueError, KeyError, TypeError):
            self._deleted = {}

    def _check_place(self, record: _Record, path: Path) -> None:
        """Each record must have its unit, and the queue no gaps."""
        if record.sys_flag & 0xC in {0x4, 0xC}:
            return
        key = (record.topic, record.queue_id)
        expected = self._next.get(key, record.queue_offset)
        if record.queue_offset != expected:
            # A topic that was deleted and made again begins at 0 again.
            if record.queue_offset == 0:
                self._matched.pop(key, None)
            else:
                self._report.add(
                    path,
                    f"the record at {record.offset} is number {record.queue_offset} of its queue "
                    f"{record.topic}/{record.queue_id}, but {expected} is next",
                )
        self._next[key] = record.queue_offset + 1
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
            self._report.add(path, f"the record at {offset} has no unit, others behind it have")
        if unit is None or unit[:2] != (record.offset, record.size):
            if unit is None or unit[0] < record.offset or unit[1] == FILLER_SIZE:
                self._report.add(
                    path, f"the record at {record.offset} has no unit in its queue: {unit}"
                )
            return
        self._matched[key] += 1
        code = unit[2]
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
                    path, f"the extension of the record at {record.offset} has another time"
                )
        tags = record.properties.get("TAGS", "")
        is_delayed = record.topic == RMQ_SYS_SCHEDULE_TOPIC and "DELAY" in record.properties
        if code != _java_hash(tags) if not is_delayed else code < record.store_timestamp:
            self._report.add(
                path, f"the unit of the record at {record.offset} has another tags code"
            )

    # -- queues

    def _open_queues(self) -> None:
        for name, table in (
            ("consumequeue", self._queues),
            ("consumequeue_ext", self._extensions),
        ):
            root = self._root / name
            for topic in sorted(root.iterdir()) if root.is_dir() else ():
                for directory in sorted(topic.iterdir()) if topic.is_dir() else ():
                    if directory.name.isdigit():
                        table[topic.name, int(directory.name)] = _Files(directory, self._report)

    def _unit(self, key: tuple[str, int], queue_offset: int) -> tuple[int, int, int] | None:
        files = self._queues.get(key)
        place = None if files is None else files.at(queue_offset * UNIT_SIZE)
        if place is None:
            return None
        unit = UNIT.unpack_from(place[0], place[1])
        return unit if unit[1] > 0 else None

    def _extension(self, key: tuple[str, int], address: int) -> tuple[int, int, bytes] | None:
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

    def _check_extensions(self) -> int:
        """Each address in a queue's units must be where an extension begins, and they must rise.

        Extensions that no unit leads to are none of anybody's: the original leaves some. Returns
        how many there are.
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
            for offset in self._extension_offsets(key):
                if offset >= min(files.maps, default=0):
                    if offset not in known:
                        self._report.add(path, f"a unit leads to {offset}: no extension begins")
                    elif offset <= last:
                        self._report.add(path, f"a unit leads to {offset}, which is before {last}")
                    last = max(last, offset)
        return count

    def _extension_offsets(self, key: tuple[str, int]) -> Iterator[int]:
        """Yield where the units of messages lead to that are not damaged, in their order."""
        damaged = [(one["from"], one["to"]) for one in self._report.commit_log["damaged"]]
        queue = self._queues.get(key)
        for _, data in sorted(queue.maps.items()) if queue is not None else ():
            for offset, size, code in UNIT.iter_unpack(data):
                if size <= 0:
                    break
                if code <= ADDRESS_MAX and not any(low <= offset < high for low, high in damaged):
                    yield code - ADDRESS_BASE

    def _walk_extensions(self, files: _Files, file_from: int) -> list[int]:
        """Return where extensions of a file begin, up to its end, a mark or what is not one.

        A power cut may have taken the mark: zeros end a file as well.
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

    def _check_queues(self) -> None:
        units = fillers = 0
        low = min(self._log.maps, default=0)
        for key, files in self._queues.items():
            living = 0
            for start in sorted(files.maps):
                for commit_log_offset, size, _ in UNIT.iter_unpack(files.maps[start]):
                    if size <= 0:
                        break
                    units += 1
                    if size == FILLER_SIZE:
                        fillers += 1
                    elif commit_log_offset >= self._end and not self._report.clean_exit:
                        self._report.ahead["units"] += 1
                    elif commit_log_offset >= low:
                        living += 1
            if living != self._matched[key]:
                topic, queue_id = key
                self._report.add(
                    self._root / "consumequeue" / topic / str(queue_id),
                    f"{living} units, but {self._matched[key]} records have theirs here",
                )
        self._report.consume_queues = {
            "queues": len(self._queues),
            "units": units,
            "fillers": fillers,
            "extensions": self._check_extensions(),
        }

    # -- index

    def _check_index(self) -> None:
        entries = files = 0
        root = self._root / "index"
        for path in sorted(root.iterdir()) if root.is_dir() else ():
            if not re.fullmatch(r"[0-9]{17}", path.name):
                self._report.add(path, "does not belong here")
                continue
            files += 1
            with path.open("rb") as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            entries += self._check_index_file(path, data)
            data.close()
        self._report.index = {"files": files, "entries": entries}

    def _check_index_file(self, path: Path, data: mmap.mmap) -> int:
        """The numbers of slots and entries are not in the file: the chains tell."""
        used_slots: int
        count: int
        *_, used_slots, count = HEADER.unpack_from(data, 0)
        slot_num = self._slot_num(data, count)
        if slot_num is None:
            if count > 1:
                self._report.add(path, "slots and entries do not fit together")
            return 0
        entries_from = HEADER_SIZE + slot_num * SLOT_SIZE
        seen = bytearray(count)
        used = 0
        for slot in range(slot_num):
            (number,) = SLOT.unpack_from(data, HEADER_SIZE + slot * SLOT_SIZE)
            while number >= count and not self._report.clean_exit:
                # Written since the header was read: a chain only grows at its head.
                self._report.ahead["entries"] += 1
                *_, number = ENTRY.unpack_from(data, entries_from + number * ENTRY_SIZE)
            used += 0 < number < count
            while 0 < number < count:
                hash_, offset, _, previous = ENTRY.unpack_from(
                    data, entries_from + number * ENTRY_SIZE
                )
                if seen[number] or hash_ % slot_num != slot or previous >= number:
                    self._report.add(path, f"entry {number} is in the wrong chain")
                    break
                seen[number] = 1
                self._check_entry(path, number, hash_, offset)
                number = previous
        if used != used_slots:
            self._report.add(path, f"{used} slots are used, the header says {used_slots}")
        if seen.count(1) != max(count - 1, 0):
            self._report.add(path, f"{seen.count(1)} of {count - 1} entries are in a chain")
        return max(count - 1, 0)

    @staticmethod
    def _slot_num(data: mmap.mmap, count: int) -> int | None:
        """Return the number of slots that fits the file's length, its first and last entry."""
        if count <= 1:
            return None
        default = 5_000_000
        likely: int | None = None
        _, _, _, end_offset, _, _ = HEADER.unpack_from(data, 0)
        for slot_num in (default, *range(1, (len(data) - HEADER_SIZE) // SLOT_SIZE)):
            rest = len(data) - HEADER_SIZE - slot_num * SLOT_SIZE
            if rest < ENTRY_SIZE * 2 or rest % ENTRY_SIZE:
                continue
            start = HEADER_SIZE + slot_num * SLOT_SIZE
            hash_, _, _, previous = ENTRY.unpack_from(data, start + ENTRY_SIZE)
            empty = data[start : start + ENTRY_SIZE] == bytes(ENTRY_SIZE)
            if not empty or previous != 0 or hash_ < 0:
                continue
            number: int
            (number,) = SLOT.unpack_from(data, HEADER_SIZE + hash_ % slot_num * SLOT_SIZE)
            while 1 < number < count:
                *_, number = ENTRY.unpack_from(data, start + number * ENTRY_SIZE)
            if number == 1:
                last = start + (count - 1) * ENTRY_SIZE
                hash_, offset, _, _ = ENTRY.unpack_from(data, min(last, len(data) - ENTRY_SIZE))
                slot = HEADER_SIZE + abs(hash_) % slot_num * SLOT_SIZE
                # Slots that nobody has used look like an entry of hash 0 at the log's begin.
                is_first = any(data[start + ENTRY_SIZE : start + 2 * ENTRY_SIZE])
                is_last = offset == end_offset and SLOT.unpack_from(data, slot) == (count - 1,)
                if is_first and is_last:
                    return int(slot_num)
                likely = likely or int(slot_num)
        return likely

    def _check_entry(self, path: Path, number: int, hash_: int, offset: int) -> None:
        if offset < min(self._log.maps, default=0):
            return
        if offset >= self._end and not self._report.clean_exit:
            self._report.ahead["entries"] += 1
            return
        place = self._log.at(offset)
        found = None if place is None else self._read(place[0], place[1], offset)
        if not isinstance(found, _Record):
            self._report.add(path, f"entry {number} points at {offset}, where no record is")
            return
        keys = [found.properties.get("UNIQ_KEY", ""), *found.properties.get("KEYS", "").split(" ")]
        if hash_ not in {_index_hash(f"{found.topic}#{key}") for key in keys if key}:
            self._report.add(path, f"entry {number} has a hash of none of its message's keys")

    # -- configuration

    def _check_configuration(self) -> None:
        read: dict[str, Any] = {}
        for name in CONFIG_NAMES:
            path = self._root / "config" / name
            if not path.exists():
                continue
            try:
                read[name] = json.loads(_with_quoted_keys(path.read_text("utf-8")))
                self._report.configuration[name] = "read"
            except ValueError as error:
                self._report.configuration[name] = "damaged"
                self._report.add(path, f"cannot be read: {error}")
        for key, offsets in read.get("consumerOffset.json", {}).get("offsetTable", {}).items():
            topic = key.partition("@")[0]
            for queue_id, offset in offsets.items():
                end = self._next.get((topic, int(queue_id)))
                if end is not None and offset > end and not self._report.clean_exit:
                    self._report.ahead["offsets"] += 1
                elif end is not None and offset > end:
                    self._report.add(
                        self._root / "config" / "consumerOffset.json",
                        f"{key} is at {offset} of queue {queue_id}, which ends at {end}",
                    )


def verify(root: Path, commit_log: Path | None = None) -> Report:
    """Check a store directory."""
    return Verifier(root, commit_log).run()


def _parse(record: bytes, offset: int, topic_size_bytes: int) -> _Record:
    """Take a record apart, field by field.

    Raises:
        ValueError: it contradicts itself; the text says how.
        IndexError: a field lies behind its end.
    """
    sys_flag = _int(record, 36, 4)
    store_timestamp_at = 48 + (20 if sys_flag & 0x10 else 8)
    reconsume_at = store_timestamp_at + 8 + (20 if sys_flag & 0x20 else 8)
    body_at = reconsume_at + 16
    body_size = _int(record, body_at - 4, 4)
    topic_at = body_at + body_size + topic_size_bytes
    if body_size < 0 or topic_at > len(record):
        raise ValueError(f"body size {body_size} does not fit")
    topic_size = _int(record, body_at + body_size, topic_size_bytes)
    properties_at = topic_at + topic_size + 2
    if topic_size < 1 or properties_at > len(record):
        raise ValueError(f"topic size {topic_size} does not fit")
    if properties_at + _int(record, properties_at - 2, 2) != len(record):
        raise ValueError("its parts do not add up to its size")
    if _int(record, 28, 8) != offset:
        raise ValueError(f"it says it lies at {_int(record, 28, 8)}")
    body = record[body_at : body_at + body_size]
    if body and zlib.crc32(body) & CRC_MASK != _int(record, 8, 4):
        raise ValueError("the checksum of its body is wrong")
    guard = _GUARD.fullmatch(record[-GUARD_SIZE:])
    if guard and int(guard[1][::-1]) != zlib.crc32(record[:-GUARD_SIZE]) & CRC_MASK:
        raise ValueError("the checksum of the whole of it is wrong")
    pairs = (pair.partition("\x01") for pair in record[properties_at:].decode().split("\x02"))
    return _Record(
        offset,
        len(record),
        record[topic_at : topic_at + topic_size].decode(),
        _int(record, 12, 4),
        _int(record, 20, 8),
        sys_flag,
        _int(record, store_timestamp_at, 8),
        {key: value for key, _, value in pairs if key and value},
    )


def _int(data: mmap.mmap | bytes, position: int, size: int) -> int:
    part = data[position : position + size]
    if len(part) < size:
        raise IndexError(f"it ends within the field at {position}")
    return int.from_bytes(part, "big", signed=True)


def _java_hash(text: str) -> int:
    value = 0
    data = text.encode("utf-16-be")
    for at in range(0, len(data), 2):
        value = (value * 31 + (data[at] << 8) + data[at + 1]) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _index_hash(text: str) -> int:
    value = abs(_java_hash(text))
    return 0 if value >> 31 else value


def _with_quoted_keys(text: str) -> str:
    """Return what fastjson writes as JSON: it leaves numbers that are keys without quotes."""
    return _NUMBER_KEY.sub(
        lambda found: f'{found[1]}"{found[2]}"{found[3]}' if found[2] else found[0], text
    )
