"""Settings of one log, resolved: topic configuration over the node's. Names are Kafka's topic configs."""

from __future__ import annotations

from functools import cached_property
from typing import Final

from msgspec import Struct

from streamlog.model import INT32_MAX
from streamlog.records import TimestampType

NEVER: Final = 2**63 - 1  # Kafka's Long.MAX_VALUE: a limit that is never reached
DAY_MS: Final = 24 * 60 * 60 * 1000


class LogConfig(Struct, frozen=True, kw_only=True, dict=True):
    """Sizes in bytes, times in ms. -1 means "no limit" where it does in Kafka."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    cleanup_delete: bool = True
    cleanup_compact: bool = False
    delete_retention_ms: int = DAY_MS
    file_delete_delay_ms: int = 60_000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NEVER
    max_message_bytes: int = 1024 * 1024 + 12  # Kafka's message.max.bytes
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    # Group commit (SEMANTICS 5): 1 syncs before acknowledging; NEVER leaves it to the page cache, as Kafka does.
    flush_messages: int = 1
    flush_ms: int = NEVER
    # With flush_messages=1: appends beyond this are refused until a sync has completed. Recovery relies on it:
    # damage followed by more intact bytes than this cannot be a torn tail.
    unsynced_bytes_max: int = 64 << 20
    producer_expiration_ms: int = DAY_MS

    def __post_init__(self) -> None:
        if not 0 < self.segment_bytes <= INT32_MAX:
            raise ValueError(f"segment.bytes must be in 1..{INT32_MAX}, not {self.segment_bytes}")
        if self.segment_index_bytes < 12:
            raise ValueError(f"segment.index.bytes must be at least 12, not {self.segment_index_bytes}")

    @cached_property  # looked up several times for each record
    def syncs_each_append(self) -> bool:
        """Whether only synced records may be acknowledged."""
        return self.flush_messages == 1

    @cached_property
    def unsynced_limit(self) -> int:
        """Bytes beyond which an append is refused until a sync has completed."""
        return self.unsynced_bytes_max if self.syncs_each_append else 2**63
