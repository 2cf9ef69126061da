"""The broker configs that the share coordinator reads, with Kafka's defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ShareCoordinatorConfig:
    updates_per_snapshot: int = 500
    write_timeout_ms: int = 5_000
    prune_interval_ms: int = 300_000
    cold_snapshot_interval_ms: int = 300_000


PROPERTIES = {
    "updates_per_snapshot": "share.coordinator.snapshot.update.records.per.snapshot",
    "write_timeout_ms": "share.coordinator.write.timeout.ms",
    "prune_interval_ms": "share.coordinator.state.topic.prune.interval.ms",
    "cold_snapshot_interval_ms": "share.coordinator.cold.partition.snapshot.interval.ms",
}


def from_properties(value_of: Callable[[str], Any]) -> ShareCoordinatorConfig:
    """From parsed broker properties by their names."""
    return ShareCoordinatorConfig(**{field: value_of(name) for field, name in PROPERTIES.items()})
