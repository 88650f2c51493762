"""A topic's configuration as topics.json and the wire carry it.

Fields stand in the alphabetical order of their JSON keys, which is the order fastjson writes.

Source: common/TopicConfig.java, common/constant/PermName.java (4.9.7).
"""

from __future__ import annotations

import msgspec

PERM_INHERIT = 1
PERM_WRITE = 2
PERM_READ = 4
PERM_MAX = 7
QUEUE_NUMS_MAX = 65_535
"""More queues than this in one topic is a slip of the keyboard, not a wish."""


class TopicConfig(msgspec.Struct, rename="camel", kw_only=True):
    """Queues, permissions and flags of a topic."""

    order: bool = False
    perm: int = PERM_READ | PERM_WRITE
    read_queue_nums: int = 16
    topic_filter_type: str = "SINGLE_TAG"
    topic_name: str
    topic_sys_flag: int = 0
    write_queue_nums: int = 16

    @property
    def is_readable(self) -> bool:
        return bool(self.perm & PERM_READ)

    @property
    def is_writable(self) -> bool:
        return bool(self.perm & PERM_WRITE)

    @property
    def is_inherited(self) -> bool:
        """Whether topics may be created after this one's model (TBW102)."""
        return bool(self.perm & PERM_INHERIT)
