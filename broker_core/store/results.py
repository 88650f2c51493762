"""Outcomes of store calls, as values with RocketMQ's names.

Source: store/PutMessageStatus.java, store/GetMessageStatus.java (4.9.8).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from broker_core.formats.cq_ext_unit import CqExtUnit


class PutMessageStatus(Enum):
    """The outcome of a put. With FLUSH_ and SLAVE_ ones the message is stored, if less safely."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPEDFILE_FAILED = "CREATE_MAPEDFILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGE_CACHE_BUSY = "OS_PAGECACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    BATCH_TOO_LARGE = "BATCH_TOO_LARGE"
    """Our own status: the batch has too many messages or keys."""


class RefusedPutError(Exception):
    """The store refused a put; `status` says why."""

    def __init__(self, status: PutMessageStatus) -> None:
        super().__init__(status.name)
        self.status = status


class GetMessageStatus(Enum):
    """What a get found."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class PutMessageResult(Struct, gc=False):
    """Where a message was put; offsets are -1 when it was not.

    A Struct, which is made in a third of the time of an object: there is one for each message.
    """

    status: PutMessageStatus
    commit_log_offset: int = -1
    queue_offset: int = -1
    store_timestamp: int = 0
    wrote_size: int = 0


class PutBatchResult:
    """Where a batch was put: the offsets in the log of all its messages, the first queue_offset."""

    __slots__ = ("commit_log_offsets", "queue_offset", "status", "store_timestamp", "wrote_size")

    def __init__(
        self,
        status: PutMessageStatus,
        commit_log_offsets: list[int],
        queue_offset: int = -1,
        store_timestamp: int = 0,
        wrote_size: int = 0,
    ) -> None:
        self.status = status
        self.commit_log_offsets = commit_log_offsets
        self.queue_offset = queue_offset
        self.store_timestamp = store_timestamp
        self.wrote_size = wrote_size

    @property
    def commit_log_offset(self) -> int:
        """Where the batch begins; -1 when it was not put."""
        return self.commit_log_offsets[0] if self.commit_log_offsets else -1


class GetMessageResult:
    """What a get found: whole records; adjacent ones share a buffer."""

    __slots__ = (
        "buffers",
        "byte_count",
        "max_offset",
        "message_count",
        "min_offset",
        "next_begin_offset",
        "status",
        "suggest_pulling_from_slave",
    )

    def __init__(
        self, status: GetMessageStatus, next_begin_offset: int, min_offset: int, max_offset: int
    ) -> None:
        self.status = status
        self.next_begin_offset = next_begin_offset
        self.min_offset = min_offset
        self.max_offset = max_offset
        self.buffers: list[memoryview] = []
        self.message_count = 0
        self.byte_count = 0
        self.suggest_pulling_from_slave = False


FILTERED_UNITS_MAX = 800
"""How many units a get looks at, so that one that finds nothing ends."""


class MessageFilter(Protocol):
    """Which messages a consumer wants."""

    @property
    def units_max(self) -> int:
        """How many units a get looks at; fewer where one takes long to decide."""
        ...

    def by_tags_code(self, tags_code: int) -> bool:
        """Decide by the ConsumeQueue unit; true when only the record can tell.

        True as well for the address of an extension unit that cannot be read.
        """
        ...

    def by_ext_unit(self, unit: CqExtUnit) -> bool:
        """Decide by the ConsumeQueue unit's extension; true when only the record can tell."""
        ...

    def by_record(self, record: memoryview) -> bool:
        """Decide by the record."""
        ...


class DamagedRange(NamedTuple):
    """Bytes of the log, [offset_from, offset_to), that hold no readable record."""

    offset_from: int
    offset_to: int
    reason: str


class RecoveryReport(NamedTuple):
    """What a start found and did; sizes in bytes."""

    clean_exit: bool
    scanned_from: int
    scanned_to: int
    records: int
    min_commit_log_offset: int
    max_commit_log_offset: int
    truncated_bytes: int
    damaged: list[DamagedRange]
    units_written: int
    units_missing: int
    duration_ms: int
