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
    """The outcome of a put. FLUSH_ and SLAVE_ mean that the message is stored, but less safely."""

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
    """Trebuchet's own status: the batch has too many messages or keys."""


class RefusedPutError(Exception):
    """The store refused a put; `status` gives the reason."""

    def __init__(self, status: PutMessageStatus) -> None:
        super().__init__(status.name)
        self.status = status


class GetMessageStatus(Enum):
    """The outcome of a get."""

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
    """Where a message was put; the offsets are -1 if it wasn't.

    A Struct, because creating one takes a third of the time of an object, and each message needs
    one.
    """

    status: PutMessageStatus
    commit_log_offset: int = -1
    queue_offset: int = -1
    store_timestamp: int = 0
    wrote_size: int = 0


class PutBatchResult:
    """Where a batch was put: the log offsets of all its messages, and the first queue_offset."""

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
        """Where the batch begins; -1 if it wasn't put."""
        return self.commit_log_offsets[0] if self.commit_log_offsets else -1


class GetMessageResult:
    """The result of a get: whole records; adjacent ones share a buffer."""

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
"""How many units a get looks at, so that a get without matches ends."""


class MessageFilter(Protocol):
    """Selects the messages that a consumer wants."""

    @property
    def units_max(self) -> int:
        """How many units a get looks at; fewer where a decision is slow."""
        ...

    def by_tags_code(self, tags_code: int) -> bool:
        """Decide by the ConsumeQueue unit; true when the record is needed to decide.

        Also true for the address of an extension unit that can't be read.
        """
        ...

    def by_ext_unit(self, unit: CqExtUnit) -> bool:
        """Decide by the ConsumeQueue unit's extension; true when the record is needed to decide."""
        ...

    def by_record(self, record: memoryview) -> bool:
        """Decide by the record."""
        ...


class DamagedRange(NamedTuple):
    """Bytes of the log, [offset_from, offset_to), without readable records."""

    offset_from: int
    offset_to: int
    reason: str


class RecoveryReport(NamedTuple):
    """The findings and actions of a start; sizes in bytes."""

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
