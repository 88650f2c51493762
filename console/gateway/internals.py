"""Internals: threads, memory and waits inside a broker, as it reports them."""

from __future__ import annotations

import msgspec


class Thread(msgspec.Struct, frozen=True, rename="camel"):
    """A thread of the broker process, with counts since the broker started."""

    id: int
    name: str
    state: str
    cpu_ms: int
    major_faults: int


class DiskReads(msgspec.Struct, frozen=True, rename="camel"):
    """Reads not served from memory since the broker started; None: unknown."""

    disk_read_bytes: int | None
    cold_messages: int


class Memory(msgspec.Struct, frozen=True, rename="camel"):
    """Memory use of the broker's files and of the machine; None: unknown."""

    mapped_resident_bytes: int | None
    page_cache_bytes: int | None
    memory_bytes: int | None
    available_bytes: int | None


class Log(msgspec.Struct, frozen=True, rename="camel"):
    """Offsets at both ends of the CommitLog."""

    min_offset: int
    max_offset: int
    flushed_offset: int

    @property
    def held_bytes(self) -> int:
        return self.max_offset - self.min_offset

    @property
    def unflushed_bytes(self) -> int:
        return max(0, self.max_offset - self.flushed_offset)


class Quarantined(msgspec.Struct, frozen=True, rename="camel"):
    """A range of the log without a readable record."""

    start: int = msgspec.field(name="from")
    end: int = msgspec.field(name="to")
    reason: str
    file: str
    file_offset: int

    @property
    def size(self) -> int:
        return self.end - self.start


class Internals(msgspec.Struct, frozen=True, rename="camel"):
    """A broker's internals. Latencies are calls by bucket; the last bucket has no upper bound."""

    boot_timestamp: int
    threads: list[Thread]
    reads: DiskReads
    memory: Memory
    log: Log
    latency_bounds_ms: list[float]
    latencies: dict[str, list[int]]
    recent: dict[str, list[int]]
    quarantine: list[Quarantined]

    @property
    def cpu_ms(self) -> int:
        return sum(each.cpu_ms for each in self.threads)

    @property
    def major_faults(self) -> int:
        return sum(each.major_faults for each in self.threads)


def decoded(data: bytes) -> Internals:
    """Decode a broker's report.

    Raises:
        ValueError: the bytes aren't a valid report.
    """
    found = msgspec.json.decode(data, type=Internals)
    for counts in (*found.latencies.values(), *found.recent.values()):
        if len(counts) != len(found.latency_bounds_ms) + 1:
            raise ValueError("a histogram has the wrong number of buckets")
    return found
