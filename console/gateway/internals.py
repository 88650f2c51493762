"""Internals: what runs inside a broker and where it waits, as it says itself."""

from __future__ import annotations

import msgspec


class Thread(msgspec.Struct, frozen=True, rename="camel"):
    """A thread of the broker's process; counted since its start."""

    id: int
    name: str
    state: str
    cpu_ms: int
    major_faults: int


class Reads(msgspec.Struct, frozen=True, rename="camel"):
    """Reads that memory did not serve, since the broker's start; None: not known."""

    disk_read_bytes: int | None
    cold_messages: int


class Memory(msgspec.Struct, frozen=True, rename="camel"):
    """What lies in memory, of the broker's files and of the machine; None: not known."""

    mapped_resident_bytes: int | None
    page_cache_bytes: int | None
    memory_bytes: int | None
    available_bytes: int | None


class Log(msgspec.Struct, frozen=True, rename="camel"):
    """Ends of the CommitLog."""

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
    """A range of the log that holds no readable record."""

    start: int = msgspec.field(name="from")
    end: int = msgspec.field(name="to")
    reason: str
    file: str
    file_offset: int

    @property
    def size(self) -> int:
        return self.end - self.start


class Internals(msgspec.Struct, frozen=True, rename="camel"):
    """The inside of a broker; latencies are calls by bucket, the last above the last bound."""

    boot_timestamp: int
    threads: list[Thread]
    reads: Reads
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
    """Return what a broker says of itself.

    Raises:
        ValueError: the bytes are none of this.
    """
    found = msgspec.json.decode(data, type=Internals)
    for counts in (*found.latencies.values(), *found.recent.values()):
        if len(counts) != len(found.latency_bounds_ms) + 1:
            raise ValueError("a histogram has another number of buckets than bounds")
    return found
