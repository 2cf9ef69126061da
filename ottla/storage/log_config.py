"""The topic configuration of a log: Kafka's names with underscores, and parsed values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ottla.protocol.records.compression import CODEC_IDS, CODECS, TARGET_CODECS
from ottla.protocol.records.validate import RecordRules
from ottla.protocol.slotted import frozen

NEVER = 2**63 - 1


@frozen
class LogConfig:
    """The part of Kafka's topic configuration that the log itself reads, with Kafka's defaults."""

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_type: str = "producer"
    compression_gzip_level: int = CODECS[CODEC_IDS["gzip"]].level_default
    compression_lz4_level: int = CODECS[CODEC_IDS["lz4"]].level_default
    compression_zstd_level: int = CODECS[CODEC_IDS["zstd"]].level_default
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = NEVER
    flush_ms: int = NEVER
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = NEVER
    max_decompressed_message_bytes: int = 2_147_483_639
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = NEVER
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    # Tiered storage (KIP-405): -2 means as retention.ms and retention.bytes.
    remote_storage_enable: bool = False
    remote_log_copy_disable: bool = False
    local_retention_ms: int = -2
    local_retention_bytes: int = -2
    # This is a broker's configuration in Kafka; each log reads it.
    producer_id_expiration_ms: int = 86_400_000
    transaction_max_timeout_ms: int = 900_000
    # Ottla's own: whether the topic is a table, too, and how long segments wait for it.
    ottla_table_format: str = "none"
    ottla_table_retention_hold: bool = True
    ottla_table_hold_ms_max: int = 86_400_000
    # Ottla's own: decode every produced record, not only if the topic's configuration needs it.
    validate_records: bool = False

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def expires(self) -> bool:
        """Return whether segments leave the local disk by age and size. With remote storage an empty cleanup.policy does not keep them (as in Kafka 4.3)."""
        return self.delete or self.is_copied

    @property
    def holds_for_table(self) -> bool:
        return self.ottla_table_format != "none" and self.ottla_table_retention_hold

    @property
    def is_copied(self) -> bool:
        """Return whether segments are copied to remote storage, and wait for that before they are deleted here."""
        return self.remote_storage_enable and not self.remote_log_copy_disable

    @property
    def kept_ms(self) -> int:
        """The age at which segments leave the local disk."""
        return self.local_retention_ms if self.is_copied and self.local_retention_ms != -2 else self.retention_ms

    @property
    def kept_bytes(self) -> int:
        """The bytes that stay on the local disk."""
        is_own = self.is_copied and self.local_retention_bytes != -2
        return self.local_retention_bytes if is_own else self.retention_bytes

    @property
    def roll_ms(self) -> int:
        """The age at which the active segment is sealed. Compaction needs it sealed within max.compaction.lag.ms (KIP-354)."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    def compression_level(self, codec: int) -> int | None:
        """Return the topic's level for a codec (`protocol.records.compression`), None for one that has none."""
        row = CODECS[codec]
        level: int | None = getattr(self, f"compression_{row.name}_level") if row.has_levels else None
        return level

    def record_rules(self) -> RecordRules:
        """Return the requirements on produced records."""
        codec = TARGET_CODECS[self.compression_type]
        return RecordRules(
            max_message_bytes=self.max_message_bytes,
            log_append_time=self.log_append_time,
            timestamp_before_max_ms=self.message_timestamp_before_max_ms,
            timestamp_after_max_ms=self.message_timestamp_after_max_ms,
            compacted=self.compact,
            check_records=self.validate_records,
            max_decompressed_bytes=self.max_decompressed_message_bytes,
            codec=codec,
            level=None if codec is None else self.compression_level(codec),
        )

    @classmethod
    def from_topic_configs(cls, values: Mapping[str, Any]) -> LogConfig:
        """Make a configuration from parsed values by Kafka's dotted names; names that the log does not read are ignored."""
        names = {field.name for field in fields(cls)}
        known: dict[str, Any] = {}
        for dotted, value in values.items():
            name = dotted.replace(".", "_")
            if name not in names or value is None:
                continue
            if name == "cleanup_policy":
                value = tuple(value.split(",")) if isinstance(value, str) else tuple(value)
            known[name] = value
        if (size := values.get("internal.segment.bytes")) is not None:
            known["segment_bytes"] = size  # it takes precedence over segment.bytes, which always has a value
        return cls(**known)
