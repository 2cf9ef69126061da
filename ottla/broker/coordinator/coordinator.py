"""The base of the group, transaction and share coordinators: an internal topic, whose partitions each are a shard.

A coordinator is notified of the partitions that its broker leads, loads and unloads their shards, and finds the shard of a key.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from ottla.broker.configs import BrokerConfigs
from ottla.broker.coordinator.runtime import CoordinatorRuntime
from ottla.broker.coordinator.shard import Shard
from ottla.broker.metadata_cache import MetadataCache
from ottla.server.client_bounds import Kept
from ottla.server.network.context import Answer, gather


def java_hash_code(text: str) -> int:
    """Return what Java's String.hashCode does: over UTF-16 code units, as a signed 32-bit number."""
    units = text.encode("utf-16-le", "surrogatepass")
    value = 0
    for unit in struct.unpack(f"<{len(units) // 2}H", units):
        value = (31 * value + unit) & 0xFFFF_FFFF
    return value - (1 << 32) if value & 0x8000_0000 else value


#: The hashes of some 10,000 names: every request of a group needs that of its name.
hashes: Kept[str, int] = Kept("partition_hashes", 4 * 1024 * 1024)


def partition_for(key: str, partition_count: int) -> int:
    """Return Kafka's Utils.abs(hashCode) modulo the count; -2**31 has no positive counterpart, and counts as 0."""
    value = hashes.get(key)
    if value is None:
        value = hashes.keep(key, java_hash_code(key), key)
    return (0 if value == -(1 << 31) else abs(value)) % partition_count


ShardT = TypeVar("ShardT", bound=Shard)
T = TypeVar("T")


class Replica(Protocol):
    @property
    def topic(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...


class Coordinator(Generic[ShardT]):
    """Base of the coordinators, and a `LeadershipListener` of replicas. `partition_count()` is that of the runtime's topic, or the number
    that it will be created with.
    """

    def __init__(self, runtime: CoordinatorRuntime[ShardT], partition_count: Callable[[], int]) -> None:
        self.runtime = runtime
        self.partition_count = partition_count

    def on_leader(self, partition: Replica) -> None:
        if partition.topic == self.runtime.topic:
            self.on_elected(partition.index, partition.leader_epoch)

    def on_resigned(self, partition: Replica) -> None:
        if partition.topic == self.runtime.topic:
            self.unload(partition.index)

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """This broker leads a partition of the topic."""
        self.runtime.on_elected(partition, leader_epoch)

    def unload(self, partition: int) -> None:
        """Unload the partition, because this broker stops leading it, or it is deleted."""
        self.runtime.on_resigned(partition)

    def close(self) -> None:
        self.runtime.close()

    def partition_for(self, key: str) -> int:
        return partition_for(key, self.partition_count())

    def by_partition(self, keys: Iterable[str], ask: Callable[[int, list[str]], Answer[list[T]]]) -> Answer[list[T]]:
        """Return the results for all keys; each shard is asked once."""
        parts: dict[int, list[str]] = {}
        for key in keys:
            parts.setdefault(self.partition_for(key), []).append(key)
        answers = [ask(partition, part) for partition, part in parts.items()]
        return gather(answers, lambda lists: [item for items in lists for item in items])


def partition_counter(
    metadata: MetadataCache, configs: BrokerConfigs, topic: str, default_config: str
) -> Callable[[], int]:
    """Return the `partition_count` of a coordinator."""

    def partition_count() -> int:
        image = metadata.image.topics.by_name(topic)
        count: int = configs[default_config] if image is None else len(image.partitions)
        return count

    return partition_count
