"""StoreConfig: the settings of the message store.

Source: store/config/MessageStoreConfig.java (4.9.7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from broker_core.config import checks
from broker_core.config.setting import BYTES, HOURS, MILLISECONDS, PAGES, PERCENT, SECONDS, setting

DEFAULT_MESSAGE_DELAY_LEVEL = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
CQ_UNIT_BYTES = 20
MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Settings of the store; milliseconds and bytes unless the name says otherwise."""

    broker_role: Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"] = setting(
        "ASYNC_MASTER", important=True
    )
    """The role at the start; read `ha.role.Role` for the current one."""
    offset_check_in_slave: bool = setting(default=False, live=True)
    """Whether a slave corrects a pull outside its queue as a master does; otherwise it redirects
    the consumer to the master, since the slave may just be behind.
    """
    store_path_root_dir: str = setting("", important=True)
    store_path_commit_log: str = setting("", check=checks.one_directory, important=True)
    mapped_file_size_commit_log: int = setting(
        1 << 30,
        aliases=("mapedFileSizeCommitLog",),
        low=1 << 16,
        high=1 << 30,
        unit=BYTES,
        important=True,
    )
    mapped_file_size_consume_queue: int = setting(
        6_000_000, low=CQ_UNIT_BYTES, high=1 << 30, unit=BYTES
    )
    enable_consume_queue_ext: bool = False
    mapped_file_size_consume_queue_ext: int = setting(48 << 20, low=64, high=1 << 30, unit=BYTES)
    bit_map_length_consume_queue_ext: int = setting(64, has_effect=False)
    """As in RocketMQ, the broker sets this at its start to the size that the Bloom filter
    needs.
    """
    flush_disk_type: Literal["ASYNC_FLUSH", "SYNC_FLUSH"] = setting("ASYNC_FLUSH", important=True)
    flush_interval_commit_log: int = setting(
        500, low=1, high=MINUTE_MS, unit=MILLISECONDS, live=True, important=True
    )
    flush_commit_log_least_pages: int = setting(4, unit=PAGES, live=True)
    flush_commit_log_thorough_interval: int = setting(10_000, unit=MILLISECONDS, live=True)
    flush_commit_log_timed: bool = setting(default=True, important=True)
    """Whether ASYNC_FLUSH always waits for its interval, even with the least number of pages to
    flush.
    """
    transient_store_pool_enable: bool = setting(default=False, important=True)
    """No effect with SYNC_FLUSH: see `is_transient_store_pool_enabled`."""
    transient_store_pool_size: int = setting(5, low=2, high=64)
    """Number of buffers, each as long as a file of the log."""
    fast_fail_if_no_buffer_in_store_pool: bool = setting(default=False, live=True)
    commit_interval_commit_log: int = setting(
        200, low=1, high=MINUTE_MS, unit=MILLISECONDS, live=True, important=True
    )
    commit_commit_log_least_pages: int = setting(4, unit=PAGES, live=True)
    commit_commit_log_thorough_interval: int = setting(200, unit=MILLISECONDS, live=True)
    flush_interval_consume_queue: int = setting(
        1_000, low=1, high=10 * MINUTE_MS, unit=MILLISECONDS, live=True
    )
    flush_consume_queue_least_pages: int = setting(2, unit=PAGES, live=True)
    flush_consume_queue_thorough_interval: int = setting(60_000, unit=MILLISECONDS, live=True)
    sync_flush_timeout: int = setting(5_000, unit=MILLISECONDS, live=True)
    max_message_size: int = setting(
        4 << 20, low=1, high=16 << 20, unit=BYTES, live=True, important=True
    )
    check_crc_on_recover: bool = setting(default=True, key="checkCRCOnRecover")
    max_transfer_bytes_on_message_in_memory: int = setting(
        262_144, unit=BYTES, live=True, important=True
    )
    max_transfer_count_on_message_in_memory: int = setting(
        32, low=1, high=1024, live=True, important=True
    )
    max_transfer_bytes_on_message_in_disk: int = setting(
        65_536, unit=BYTES, live=True, important=True
    )
    max_transfer_count_on_message_in_disk: int = setting(
        8, low=1, high=1024, live=True, important=True
    )
    access_message_in_memory_max_ratio: int = setting(40, high=100, unit=PERCENT, important=True)
    message_index_enable: bool = setting(default=True, important=True)
    max_hash_slot_num: int = setting(5_000_000, low=1, high=100_000_000)
    max_index_num: int = setting(20_000_000, low=2, high=100_000_000)
    max_msgs_num_batch: int = setting(64, low=1, high=1024, live=True)
    default_query_max_num: int = setting(32, live=True)
    file_reserved_time: int = setting(72, unit=HOURS, live=True, important=True)
    delete_when: str = setting("04", check=checks.hours, live=True, important=True)
    disk_max_used_space_ratio: int = setting(75, low=10, high=95, unit=PERCENT, live=True)
    clean_file_forcibly_enable: bool = setting(default=True, live=True, important=True)
    clean_resource_interval: int = setting(
        10_000, low=100, high=60 * MINUTE_MS, unit=MILLISECONDS, live=True
    )
    delete_commit_log_files_interval: int = setting(100, unit=MILLISECONDS, live=True)
    delete_consume_queue_files_interval: int = setting(100, unit=MILLISECONDS, live=True)
    warm_maped_file_enable: bool = False
    flush_least_pages_when_warm_maped_file: int = setting(4_096, low=1, high=1 << 18, unit=PAGES)
    enabled_append_prop_crc: bool = setting(default=False, key="enabledAppendPropCRC")
    """Add a checksum of the whole record as a property, as 5.x does."""
    os_page_cache_busy_time_out_mills: int = setting(1_000, unit=MILLISECONDS, live=True)
    message_delay_level: str = setting(
        DEFAULT_MESSAGE_DELAY_LEVEL, check=checks.delay_levels, important=True
    )
    flush_delay_offset_interval: int = setting(
        10_000, low=100, high=10 * MINUTE_MS, unit=MILLISECONDS
    )
    enable_schedule_message_stats: bool = True
    timer_wheel_enable: bool = setting(default=True, live=True)
    """Whether new timer messages are accepted; pending ones are delivered in any case."""
    timer_max_delay_sec: int = setting(
        3 * 86_400, low=1, high=3_660 * 86_400, unit=SECONDS, live=True, important=True
    )
    """How far ahead a delivery time may be."""

    @property
    def is_transient_store_pool_enabled(self) -> bool:
        """Whether messages wait in buffers.

        SYNC_FLUSH needs them in their file immediately, and a slave doesn't put messages.
        """
        return (
            self.transient_store_pool_enable
            and self.flush_disk_type == "ASYNC_FLUSH"
            and self.broker_role != "SLAVE"
        )
