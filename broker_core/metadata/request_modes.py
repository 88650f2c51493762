"""Whether groups pull or pop from topics, stored in messageRequestMode.json.

Source: broker/loadbalance/MessageRequestModeManager.java (5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from broker_core.errors import RequestRefusedError, StoreError
from broker_core.metadata.document_writer import DocumentWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.config.limits import LimitsConfig
    from broker_core.metadata.document import Document

SYSTEM_ERROR = 1
"""ResponseCode.SYSTEM_ERROR, which this layer can't import."""
PULL, POP = "PULL", "POP"
NAME_CHARS_MAX = 255
ALL = ""
"""Used in place of an entry's name for the whole table."""


class RequestMode(msgspec.Struct, rename="camel", kw_only=True, gc=False):
    """The mode of one group for one topic; also the body of SET_MESSAGE_REQUEST_MODE."""

    consumer_group: str
    mode: str = PULL
    pop_share_queue_num: int = 0
    """Number of other clients that may pop from a client's queues; 0: all clients pop all queues.
    """
    topic: str


class RequestModes:
    """Event loop only. Await `writer.until_written` with the topic before confirming a change."""

    def __init__(self, document: Document, limits: LimitsConfig) -> None:
        self._document = document
        self._limits = limits
        self._count = 0
        self.writer = DocumentWriter(document, self._snapshot)
        self.table: dict[str, dict[str, RequestMode]] = {}

    def load(self) -> None:
        """Read the file.

        Raises:
            StoreError: the file has no valid table of modes.
        """
        document = self._document.load() or {}
        try:
            self.table = msgspec.convert(
                document.get("messageRequestModeMap") or {},
                dict[str, dict[str, RequestMode]],
                strict=False,
            )
        except msgspec.ValidationError as error:
            raise StoreError(f"{self._document.path}: {error}") from error
        self._count = sum(map(len, self.table.values()))

    def find(self, topic: str, group: str) -> RequestMode | None:
        return self.table.get(topic, {}).get(group)

    def put(self, mode: RequestMode) -> None:
        """Store a mode.

        Raises:
            RequestRefusedError: the table is full, or a name is too long.
        """
        if max(len(mode.topic), len(mode.consumer_group)) > NAME_CHARS_MAX:
            raise RequestRefusedError(
                SYSTEM_ERROR,
                f"couldn't store the mode: a name has more than {NAME_CHARS_MAX} characters",
            )
        groups = self.table.get(mode.topic, {})
        if mode.consumer_group not in groups:
            most = self._limits.consumer_group_nums_max
            if self._count >= most:
                raise RequestRefusedError(
                    SYSTEM_ERROR,
                    f"couldn't store the mode: there are consumerGroupNumsMax={most} modes; raise "
                    "the limit",
                )
            self._count += 1
        self.table.setdefault(mode.topic, groups)[mode.consumer_group] = mode
        self.writer.changed(mode.topic)

    def follow(self, table: dict[str, dict[str, RequestMode]]) -> None:
        """Copy the master's table."""
        if table != self.table:
            self.table = table
            self._count = sum(map(len, table.values()))
            self.writer.changed(ALL)

    def document(self) -> dict[str, Any]:
        """Return the whole table in the file's shape."""
        return {"messageRequestModeMap": self.table}

    def _snapshot(self) -> Callable[[], dict[str, Any]]:
        table = {topic: dict(groups) for topic, groups in self.table.items()}
        return lambda: {"messageRequestModeMap": table}
