"""Placement of new replicas: striped over racks and brokers, from a random start (KIP-36, KIP-631).

Each partition starts one rack after the previous one, and takes its replicas from the racks in turn; within a rack the
brokers are used in turn, too. Fenced brokers are used only if the unfenced ones of a rack are exhausted, and never as first
replica, because the first replica leads. After as many partitions as there are unfenced brokers, the order is shuffled, so that
the same groups of brokers do not share all partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import NamedTuple

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.releases import BROKER, KAFKA_4_4, Release


class UsableBroker(NamedTuple):
    id: int
    rack: str | None
    fenced: bool


class _BrokerList:
    """Brokers in turn: each epoch (partition) starts one broker after the previous one."""

    def __init__(self, brokers: list[int], rng: Random) -> None:
        self.brokers = sorted(brokers)
        self._offset = rng.randrange(len(brokers)) if brokers else 0
        self._epoch = 0
        self._index = 0

    def next(self, epoch: int) -> int | None:
        if not self.brokers:
            return None
        if epoch != self._epoch:
            self._epoch = epoch
            self._index = 0
            self._offset = (self._offset + 1) % len(self.brokers)
        if self._index >= len(self.brokers):
            return None
        broker = self.brokers[(self._index + self._offset) % len(self.brokers)]
        self._index += 1
        return broker


class _Rack:
    def __init__(self, brokers: list[UsableBroker], rng: Random) -> None:
        self.fenced = _BrokerList([broker.id for broker in brokers if broker.fenced], rng)
        self.unfenced = _BrokerList([broker.id for broker in brokers if not broker.fenced], rng)

    def next(self, epoch: int) -> int | None:
        broker = self.unfenced.next(epoch)
        return self.fenced.next(epoch) if broker is None else broker


class _Placer:
    def __init__(self, brokers: list[UsableBroker], rng: Random) -> None:
        by_rack: dict[str | None, list[UsableBroker]] = {}
        for broker in brokers:
            by_rack.setdefault(broker.rack, []).append(broker)
        names = sorted(by_rack, key=lambda name: (name is not None, name or ""))
        self._racks = [_Rack(by_rack[name], rng) for name in names]
        self._unfenced_count = sum(not broker.fenced for broker in brokers)
        self._rng = rng
        self._epoch = 0
        self._offset = rng.randrange(len(names))

    def place(self, replication_factor: int) -> tuple[int, ...]:
        if self._epoch == self._unfenced_count and self._unfenced_count > 1:
            self._shuffle()
            self._epoch = 0
        self._offset %= len(self._racks)
        first_rack, leader = self._leader()
        replicas = [leader]
        rack = self._offset
        skip = first_rack  # the first round has used the leader's rack
        while len(replicas) < replication_factor:
            if rack == skip:
                skip = -1
            else:
                broker = self._racks[rack].next(self._epoch)
                if broker is not None:
                    replicas.append(broker)
            rack = (rack + 1) % len(self._racks)
        self._epoch += 1
        self._offset += 1
        return tuple(replicas)

    def _leader(self) -> tuple[int, int]:
        rack = self._offset
        while True:
            broker = self._racks[rack].unfenced.next(self._epoch)
            if broker is not None:
                return rack, broker
            rack = (rack + 1) % len(self._racks)

    def _shuffle(self) -> None:
        self._rng.shuffle(self._racks)
        for rack in self._racks:
            self._rng.shuffle(rack.fenced.brokers)
            self._rng.shuffle(rack.unfenced.brokers)


def place(
    brokers: Iterable[UsableBroker],
    *,
    partitions: int,
    replication_factor: int,
    rng: Random,
    release: Release = KAFKA_4_4,
) -> Iterator[tuple[int, ...]]:
    """Return the replicas of each new partition, the leader first, placed as they are asked for; raise KafkaError(INVALID_REPLICATION_FACTOR) if impossible.
    Too few brokers is the error that users of one broker see most: it has the words of the advertised `release`."""
    usable = list(brokers)
    if replication_factor <= 0:
        raise _invalid(f"Invalid replication factor {replication_factor}: the replication factor must be positive.")
    if all(broker.fenced for broker in usable):
        raise _invalid("All brokers are currently fenced.")
    if replication_factor > len(usable):
        raise _invalid(_too_few(usable, replication_factor, release))
    placer = _Placer(usable, rng)
    return (placer.place(replication_factor) for _ in range(partitions))


def _too_few(usable: list[UsableBroker], replication_factor: int, release: Release) -> str:
    if release.has_zookeeper:
        alive = sum(not broker.fenced for broker in usable)
        return f"Replication factor: {replication_factor} larger than available brokers: {alive}."
    registered = f"cannot be reached because only {len(usable)} broker(s) are registered"
    knows_cordons = "cordoned.log.dirs" not in release.lacks_configs(BROKER)
    why = f"{registered} or some brokers have all their log directories cordoned" if knows_cordons else registered
    return f"The target replication factor of {replication_factor} {why}."


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
