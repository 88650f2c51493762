"""The bits of a message's sys_flag.

Source: common/sysflag/MessageSysFlag.java (4.9.8).
"""

from __future__ import annotations

from enum import IntFlag


class MessageSysFlag(IntFlag):
    """The bits; the transaction type takes two, the compression type three."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    TRANSACTION_PREPARED_TYPE = 0x4
    TRANSACTION_COMMIT_TYPE = 0x8
    TRANSACTION_ROLLBACK_TYPE = 0xC
    BORNHOST_V6 = 0x10
    STOREHOST_V6 = 0x20
    NEED_UNWRAP = 0x40
    INNER_BATCH = 0x80
    COMPRESSION_LZ4 = 0x100
    COMPRESSION_ZSTD = 0x200
    COMPRESSION_ZLIB = 0x300


# Plain integers: every message needs them, and IntFlag arithmetic takes more than a microsecond.
COMPRESSED_FLAG = 0x1
MULTI_TAGS_FLAG = 0x2
TRANSACTION_NOT_TYPE = 0x0
TRANSACTION_PREPARED_TYPE = 0x4
TRANSACTION_COMMIT_TYPE = 0x8
TRANSACTION_ROLLBACK_TYPE = 0xC
TRANSACTION_MASK = 0xC
BORNHOST_V6_FLAG = 0x10
STOREHOST_V6_FLAG = 0x20
HOST_V6_MASK = BORNHOST_V6_FLAG | STOREHOST_V6_FLAG
COMPRESSION_MASK = 0x700


def transaction_type(sys_flag: int) -> int:
    """Return the transaction bits: one of the four types."""
    return sys_flag & TRANSACTION_MASK


def reset_transaction_type(sys_flag: int, new_type: int) -> int:
    """Return sys_flag with another transaction type."""
    return (sys_flag & ~TRANSACTION_MASK) | new_type
