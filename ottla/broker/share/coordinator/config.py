"""The broker configs that the share coordinator reads."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.server.config.settings import setting


@dataclass(frozen=True, slots=True)
class ShareCoordinatorConfig:
    updates_per_snapshot: int = setting("share.coordinator.snapshot.update.records.per.snapshot")
    write_timeout_ms: int = setting("share.coordinator.write.timeout.ms")
    prune_interval_ms: int = setting("share.coordinator.state.topic.prune.interval.ms")
    cold_snapshot_interval_ms: int = setting("share.coordinator.cold.partition.snapshot.interval.ms")
