"""A broker's registration and its changes: epoch, listeners, features, rack, fencing, log directories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from ottla.protocol.internal_topics.metadata_records import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from ottla.protocol.messages.shared_structs import Feature, Listener

# BrokerRegistrationChangeRecord.fenced and .in_controlled_shutdown; 0 is no change.
FENCE = 1
UNFENCE = -1
ENTER_CONTROLLED_SHUTDOWN = 1


class RegisteredEndpoint(NamedTuple):
    name: str
    host: str
    port: int
    security_protocol: int


class FeatureRange(NamedTuple):
    min_version: int
    max_version: int


def endpoints_of(listeners: Iterable[Listener]) -> dict[str, RegisteredEndpoint]:
    """Returns the listeners of a node's record by name; `listeners_of` is the way back."""
    return {e.name: RegisteredEndpoint(e.name, e.host, e.port, e.security_protocol) for e in listeners}


def listeners_of(endpoints: Mapping[str, RegisteredEndpoint]) -> list[Listener]:
    return [Listener(e.name, e.host, e.port, e.security_protocol) for e in endpoints.values()]


def ranges_of(features: Iterable[Feature]) -> dict[str, FeatureRange]:
    """Returns the features of a node's record by name; `features_of` is the way back."""
    return {f.name: FeatureRange(f.min_supported_version, f.max_supported_version) for f in features}


def features_of(ranges: Mapping[str, FeatureRange]) -> list[Feature]:
    return [Feature(name, span.min_version, span.max_version) for name, span in ranges.items()]


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    id: int
    epoch: int
    incarnation_id: bytes
    endpoints: Mapping[str, RegisteredEndpoint]
    features: Mapping[str, FeatureRange]
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    directories: tuple[bytes, ...] = ()
    # None: unknown (metadata.version < 30, KIP-1066).
    cordoned_directories: tuple[bytes, ...] | None = None
    is_migrating_zk_broker: bool = False

    @property
    def active(self) -> bool:
        """True if the broker may get leaders and new replicas."""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener_name: str) -> RegisteredEndpoint | None:
        return self.endpoints.get(listener_name)

    @classmethod
    def from_record(cls, record: RegisterBrokerRecord) -> BrokerRegistration:
        return cls(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=endpoints_of(record.end_points),
            features=ranges_of(record.features),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            directories=tuple(sorted(record.log_dirs)),
            cordoned_directories=None if record.cordoned_log_dirs is None else tuple(sorted(record.cordoned_log_dirs)),
            is_migrating_zk_broker=record.is_migrating_zk_broker,
        )

    def to_record(self) -> RegisterBrokerRecord:
        return RegisterBrokerRecord(
            broker_id=self.id,
            is_migrating_zk_broker=self.is_migrating_zk_broker,
            incarnation_id=self.incarnation_id,
            broker_epoch=self.epoch,
            end_points=listeners_of(self.endpoints),
            features=features_of(self.features),
            rack=self.rack,
            fenced=self.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown,
            log_dirs=list(self.directories),
            cordoned_log_dirs=None if self.cordoned_directories is None else list(self.cordoned_directories),
        )

    def with_fenced(self, fenced: bool) -> BrokerRegistration:
        return replace(self, fenced=fenced)

    def merge(self, change: BrokerRegistrationChangeRecord) -> BrokerRegistration:
        return replace(
            self,
            fenced=self.fenced if change.fenced == 0 else change.fenced == FENCE,
            in_controlled_shutdown=(
                self.in_controlled_shutdown or change.in_controlled_shutdown == ENTER_CONTROLLED_SHUTDOWN
            ),
            # An empty list is no change: a broker always has a directory (KIP-858).
            directories=tuple(sorted(change.log_dirs)) or self.directories,
            cordoned_directories=(
                self.cordoned_directories
                if change.cordoned_log_dirs is None
                else tuple(sorted(change.cordoned_log_dirs))
            ),
        )
