"""The registered nodes of the cluster, brokers and controllers: epoch, listeners, features, rack, fencing, log directories; and their producer ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import NamedTuple

from ottla.controller.metadata.shared_map import Map, changed, remove_others
from ottla.protocol.internal_topics.metadata_records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    MetadataRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)
from ottla.protocol.messages.shared_structs import Feature, Listener
from ottla.protocol.slotted import frozen

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
    """Return the listeners of a node's record by name; `listeners_of` is the way back."""
    return {e.name: RegisteredEndpoint(e.name, e.host, e.port, e.security_protocol) for e in listeners}


def listeners_of(endpoints: Iterable[RegisteredEndpoint]) -> list[Listener]:
    return [Listener(*endpoint) for endpoint in endpoints]


def ranges_of(features: Iterable[Feature]) -> dict[str, FeatureRange]:
    """Return the features of a node's record by name; `features_of` is the way back."""
    return {f.name: FeatureRange(f.min_supported_version, f.max_supported_version) for f in features}


def features_of(ranges: Mapping[str, FeatureRange]) -> list[Feature]:
    return [Feature(name, span.min_version, span.max_version) for name, span in ranges.items()]


@frozen
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
    # The directories that get no new replicas; None if they are not known (metadata.version < 30, KIP-1066).
    cordoned_directories: tuple[bytes, ...] | None = None
    is_migrating_zk_broker: bool = False

    @property
    def active(self) -> bool:
        """Return True if the broker may get leaders and new replicas."""
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
            end_points=listeners_of(self.endpoints.values()),
            features=features_of(self.features),
            rack=self.rack,
            fenced=self.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown,
            log_dirs=list(self.directories),
            cordoned_log_dirs=None if self.cordoned_directories is None else list(self.cordoned_directories),
        )

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


@frozen
class ControllerRegistration:
    id: int
    incarnation_id: bytes
    endpoints: Mapping[str, RegisteredEndpoint]
    features: Mapping[str, FeatureRange]
    zk_migration_ready: bool = False

    @classmethod
    def from_record(cls, record: RegisterControllerRecord) -> ControllerRegistration:
        return cls(
            id=record.controller_id,
            incarnation_id=record.incarnation_id,
            endpoints=endpoints_of(record.end_points),
            features=ranges_of(record.features),
            zk_migration_ready=record.zk_migration_ready,
        )

    def to_record(self) -> RegisterControllerRecord:
        return RegisterControllerRecord(
            controller_id=self.id,
            incarnation_id=self.incarnation_id,
            zk_migration_ready=self.zk_migration_ready,
            end_points=listeners_of(self.endpoints.values()),
            features=features_of(self.features),
        )


@frozen
class ClusterImage:
    brokers: Map[int, BrokerRegistration] = field(default_factory=Map)
    controllers: Map[int, ControllerRegistration] = field(default_factory=Map)

    def is_active(self, broker_id: int) -> bool:
        """Return True if the broker is registered, not fenced, and not shutting down."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.active

    def is_unfenced(self, broker_id: int) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def to_records(self) -> Iterator[MetadataRecord]:
        for _, broker in sorted(self.brokers.items()):
            yield broker.to_record()
        for _, controller in sorted(self.controllers.items()):
            yield controller.to_record()


class ClusterDelta:
    """Changed registrations by id; None if the node was unregistered."""

    __slots__ = ("changed_brokers", "changed_controllers", "image")

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.changed_brokers: dict[int, BrokerRegistration | None] = {}
        self.changed_controllers: dict[int, ControllerRegistration | None] = {}

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        """Return the broker after all records replayed so far."""
        if broker_id in self.changed_brokers:
            return self.changed_brokers[broker_id]
        return self.image.brokers.get(broker_id)

    def replay_register_broker(self, record: RegisterBrokerRecord) -> None:
        self.changed_brokers[record.broker_id] = BrokerRegistration.from_record(record)

    def replay_unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._registered(record.broker_id, record.broker_epoch)
        self.changed_brokers[record.broker_id] = None

    def replay_fence_broker(self, record: FenceBrokerRecord) -> None:
        self.changed_brokers[record.id] = replace(self._registered(record.id, record.epoch), fenced=True)

    def replay_unfence_broker(self, record: UnfenceBrokerRecord) -> None:
        self.changed_brokers[record.id] = replace(self._registered(record.id, record.epoch), fenced=False)

    def replay_broker_registration_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._registered(record.broker_id, record.broker_epoch)
        self.changed_brokers[record.broker_id] = broker.merge(record)

    def replay_register_controller(self, record: RegisterControllerRecord) -> None:
        self.changed_controllers[record.controller_id] = ControllerRegistration.from_record(record)

    def replay_unregister_controller(self, record: UnregisterControllerRecord) -> None:
        self.changed_controllers[record.controller_id] = None

    def finish_snapshot(self) -> None:
        remove_others(self.image.brokers, self.changed_brokers)
        remove_others(self.image.controllers, self.changed_controllers)

    def apply(self) -> ClusterImage:
        brokers = changed(self.image.brokers, self.changed_brokers)
        return ClusterImage(brokers, changed(self.image.controllers, self.changed_controllers))

    def _registered(self, broker_id: int, epoch: int) -> BrokerRegistration:
        broker = self.broker(broker_id)
        assert broker is not None, f"record for broker {broker_id}, which is not registered"
        assert broker.epoch == epoch, f"record for broker {broker_id} epoch {epoch}, registered is {broker.epoch}"
        return broker


@frozen
class ProducerIdsImage:
    """The first producer id that is not yet allocated to a broker; -1 if no block has been allocated."""

    next_producer_id: int = -1

    def to_records(self) -> Iterator[MetadataRecord]:
        if self.next_producer_id >= 0:
            yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=self.next_producer_id)


class ProducerIdsDelta:
    __slots__ = ("image", "next_producer_id")

    def __init__(self, image: ProducerIdsImage) -> None:
        self.image = image
        self.next_producer_id = image.next_producer_id

    def replay_producer_ids(self, record: ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    def finish_snapshot(self) -> None:
        """Do nothing: a snapshot older than the image is never loaded."""

    def apply(self) -> ProducerIdsImage:
        return ProducerIdsImage(self.next_producer_id)
