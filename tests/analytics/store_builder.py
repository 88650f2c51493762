"""Stores written by our own encoders: small files, with every byte controlled by the test."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker_core.formats import cq_unit, paths, record
from broker_core.message.ids import host_bytes

if TYPE_CHECKING:
    from pathlib import Path

FILE_BYTES = 8 * 1024
QUEUE_FILE_UNITS = 50
START_MS = 1_795_251_442_000
V4_HOST = host_bytes("127.0.0.1", 10911)
V6_HOST = host_bytes("2001:db8::7", 10911)


@dataclass(frozen=True, slots=True)
class Stored:
    """A message and its location."""

    topic: str
    body: bytes
    properties: bytes
    store_timestamp: int
    commit_log_offset: int
    size: int


@dataclass(slots=True)
class StoreBuilder:
    """Puts messages into the files of a store; `write` writes them to disk."""

    root: Path
    file_bytes: int = FILE_BYTES
    queue_file_units: int = QUEUE_FILE_UNITS
    first_offset: int = 0
    stored: list[Stored] = field(default_factory=list)
    files: dict[int, bytearray] = field(default_factory=dict)
    units: dict[tuple[str, int], bytearray] = field(default_factory=dict)
    position: int = 0

    def __post_init__(self) -> None:
        self.position = self.first_offset
        self.files[self.first_offset] = bytearray(self.file_bytes)

    def put(  # noqa: PLR0913  a record's fields
        self,
        topic: str = "orders",
        *,
        queue_id: int = 0,
        body: bytes = b"a body",
        properties: bytes = b"UNIQ_KEY\x01FD00\x02TAGS\x01TagA",
        store_timestamp: int | None = None,
        born_timestamp: int = START_MS - 5,
        born_host: bytes = V4_HOST,
        store_host: bytes = V4_HOST,
        sys_flag: int = 0,
        flag: int = 0,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        encoded_topic: bytes | None = None,
    ) -> Stored:
        name = topic.encode() if encoded_topic is None else encoded_topic
        hosts = len(born_host) + len(store_host)
        size = record.OVERHEAD_V4 - 16 + hosts + len(body) + len(name) + len(properties)
        self._roll(size)
        if store_timestamp is None:
            store_timestamp = START_MS + 1000 * len(self.stored)
        queue = self.units.setdefault((topic, queue_id), bytearray())
        start = max(self.files)
        written = record.encode_into(
            self.files[start],
            self.position - start,
            topic=name,
            queue_id=queue_id,
            queue_offset=len(queue) // cq_unit.UNIT_SIZE,
            commit_log_offset=self.position,
            body=body,
            properties=properties,
            flag=flag,
            sys_flag=sys_flag,
            born_timestamp=born_timestamp,
            born_host=born_host,
            store_timestamp=store_timestamp,
            store_host=store_host,
            reconsume_times=reconsume_times,
            prepared_transaction_offset=prepared_transaction_offset,
        )
        assert written == size
        queue += cq_unit.UNIT.pack(self.position, size, 0)
        one = Stored(topic, body, properties, store_timestamp, self.position, size)
        self.position += size
        self.stored.append(one)
        return one

    def put_many(self, count: int, topics: tuple[str, ...] = ("orders", "bills")) -> StoreBuilder:
        for number in range(count):
            body = b"%06d" % number * (1 + number % 5)
            self.put(topics[number % len(topics)], queue_id=number % 3, body=body)
        return self

    def add_zero_file(self) -> StoreBuilder:
        """Allocate the next file ahead of need, as brokers do."""
        self.files[max(self.files) + self.file_bytes] = bytearray(self.file_bytes)
        return self

    def write(self, *, queues: bool = True) -> Path:
        places = paths.StorePaths.of(str(self.root), "")
        places.commit_log.mkdir(parents=True, exist_ok=True)
        for from_offset, content in self.files.items():
            (places.commit_log / paths.offset_file_name(from_offset)).write_bytes(content)
        if queues:
            self._write_queues(places.consume_queue)
        return self.root

    def overwrite(self, offset: int, content: bytes) -> None:
        """Damage the log."""
        start = max(number for number in self.files if number <= offset)
        at = offset - start
        self.files[start][at : at + len(content)] = content

    def path_of(self, offset: int) -> Path:
        start = max(number for number in self.files if number <= offset)
        return self.root / "commitlog" / paths.offset_file_name(start)

    def _roll(self, size: int) -> None:
        start = max(self.files)
        left = start + self.file_bytes - self.position
        if size + record.BLANK_SIZE_MIN > left:
            record.encode_blank(self.files[start], self.position - start, left)
            self.position = start + self.file_bytes
            self.files[self.position] = bytearray(self.file_bytes)

    def _write_queues(self, directory: Path) -> None:
        file_bytes = self.queue_file_units * cq_unit.UNIT_SIZE
        for (topic, queue_id), units in self.units.items():
            queue = directory / topic / str(queue_id)
            queue.mkdir(parents=True, exist_ok=True)
            for at in range(0, max(1, len(units)), file_bytes):
                part = units[at : at + file_bytes]
                content = bytes(part) + bytes(file_bytes - len(part))
                (queue / paths.offset_file_name(at)).write_bytes(content)
