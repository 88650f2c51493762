"""Let topics with the same queues on one broker share a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.errors import RequestRefusedError
from broker_core.protocol.bodies.route import QueueData
from broker_core.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from broker_core.message.topic_config import TopicConfig

NAME_CHARS_MAX = 255
FILTER_SERVERS_MAX = 16
"""Filter servers of one broker."""
SHARED_MAX = 10_000


class SharedQueues:
    """Tables of one broker's queues, which must not be changed in place. Event loop only."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, int, int, int, int], dict[str, QueueData]] = {}

    def of(self, broker_name: str, config: TopicConfig) -> dict[str, QueueData]:
        """Return the table of one broker's topic."""
        sizes = config.read_queue_nums, config.write_queue_nums
        key = broker_name, config.perm, *sizes, config.topic_sys_flag
        table = self._tables.get(key)
        if table is None:
            if len(self._tables) >= SHARED_MAX:
                self._tables.clear()
            data = QueueData(
                broker_name=broker_name,
                perm=config.perm,
                read_queue_nums=config.read_queue_nums,
                topic_sys_flag=config.topic_sys_flag,
                write_queue_nums=config.write_queue_nums,
            )
            table = self._tables[key] = {broker_name: data}
        return table


def check_sizes(names: Iterable[str], filter_servers: Sequence[str]) -> None:
    """Check the sizes in a registration that a name server stores.

    Raises:
        RequestRefusedError: a name is too long, or there are too many filter servers.
    """
    if max(map(len, names)) > NAME_CHARS_MAX or len(filter_servers) > FILTER_SERVERS_MAX:
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"a name has more than {NAME_CHARS_MAX} characters, or the broker more than "
            f"{FILTER_SERVERS_MAX} filter servers",
        )
