"""The parts of the message store that timers use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from broker_core.message.message import MessageExt
    from broker_core.store.availability import Availability
    from broker_core.store.results import GetMessageResult, MessageFilter, PutMessageResult


class ReadStore(Protocol):
    """The read operations that a recovery needs."""

    def units(
        self, topic: str, queue_id: int, queue_offset: int, count: int
    ) -> list[tuple[int, int, int]]: ...

    def look_message(self, commit_log_offset: int) -> memoryview | None: ...

    def is_damaged(self, commit_log_offset: int) -> bool: ...

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int: ...

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int: ...


class TimerStore(ReadStore, Protocol):
    """The read and put operations that the service needs."""

    availability: Availability

    @property
    def flushed_where(self) -> int: ...

    def is_in_memory(self, topic: str, queue_id: int, queue_offset: int) -> bool | None: ...

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_msg_nums: int,
        message_filter: MessageFilter | None,
    ) -> GetMessageResult | Awaitable[GetMessageResult]: ...

    def query_message(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int
    ) -> list[memoryview]: ...

    def put_message(  # noqa: PLR0913  a record's fields
        self,
        topic: str,
        queue_id: int,
        body: bytes | memoryview,
        properties: str,
        *,
        tags: str | None,
        keys: str | None,
        uniq_key: str | None,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
    ) -> PutMessageResult: ...

    def put_copy(
        self, message: MessageExt, topic: str, queue_id: int, properties: Mapping[str, str]
    ) -> PutMessageResult: ...
