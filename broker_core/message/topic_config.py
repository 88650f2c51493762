"""A topic's configuration, as in topics.json and on the wire.

Fields are in the alphabetical order of their JSON keys, as fastjson writes them.

Source: common/TopicConfig.java, common/constant/PermName.java,
common/sysflag/TopicSysFlag.java (4.9.7).
"""

from __future__ import annotations

import msgspec

PERM_INHERIT = 1
PERM_WRITE = 2
PERM_READ = 4
PERM_MAX = 7
SINGLE_TAG = "SINGLE_TAG"
MULTI_TAG = "MULTI_TAG"
FLAG_UNIT = 1
FLAG_UNIT_SUB = 2
"""Bits of topic_sys_flag: a topic of a unit, and a topic with subscribers from a unit."""
MESSAGE_TYPE = "message.type"
"""The attribute with the type of a topic's messages."""
MIXED = "MIXED"
MESSAGE_TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", MIXED)
QUEUE_NUMS_MAX = 65_535
"""A topic with more queues than this is a typing mistake."""


class TopicConfig(msgspec.Struct, rename="camel", kw_only=True, gc=False):
    """Queues, permissions and flags of a topic."""

    attributes: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    """From 5.x."""
    order: bool = False
    perm: int = PERM_READ | PERM_WRITE
    read_queue_nums: int = 16
    topic_filter_type: str = SINGLE_TAG
    topic_name: str
    topic_sys_flag: int = 0
    write_queue_nums: int = 16

    @property
    def message_type(self) -> str:
        """The type of the topic's messages, under its 5.x name."""
        attributes = self.attributes
        found = attributes.get(MESSAGE_TYPE) if isinstance(attributes, dict) else None
        return found if found in MESSAGE_TYPES else MIXED

    @property
    def is_readable(self) -> bool:
        return bool(self.perm & PERM_READ)

    @property
    def is_writable(self) -> bool:
        return bool(self.perm & PERM_WRITE)

    @property
    def is_inherited(self) -> bool:
        """Whether topics may be created with this one as the template (TBW102)."""
        return bool(self.perm & PERM_INHERIT)
