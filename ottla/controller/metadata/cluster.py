"""The registered nodes of the cluster: brokers and controllers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ottla.controller.metadata.brokers import (
    BrokerRegistration,
    FeatureRange,
    RegisteredEndpoint,
    endpoints_of,
    features_of,
    listeners_of,
    ranges_of,
)
from ottla.controller.metadata.shared_map import Map
from ottla.protocol.internal_topics.metadata_records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)


@dataclass(frozen=True, slots=True)
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
            end_points=listeners_of(self.endpoints),
            features=features_of(self.features),
        )


@dataclass(frozen=True, slots=True)
class ClusterImage:
    brokers: Map[int, BrokerRegistration] = field(default_factory=Map)
    controllers: Map[int, ControllerRegistration] = field(default_factory=Map)

    def is_active(self, broker_id: int) -> bool:
        """Returns True if the broker is registered, not fenced, and not shutting down."""
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
        """Returns the broker after all records replayed so far."""
        if broker_id in self.changed_brokers:
            return self.changed_brokers[broker_id]
        return self.image.brokers.get(broker_id)

    def replay_register_broker(self, record: RegisterBrokerRecord) -> None:
        self.changed_brokers[record.broker_id] = BrokerRegistration.from_record(record)

    def replay_unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._registered(record.broker_id, record.broker_epoch)
        self.changed_brokers[record.broker_id] = None

    def replay_fence_broker(self, record: FenceBrokerRecord) -> None:
        self.changed_brokers[record.id] = self._registered(record.id, record.epoch).with_fenced(True)

    def replay_unfence_broker(self, record: UnfenceBrokerRecord) -> None:
        self.changed_brokers[record.id] = self._registered(record.id, record.epoch).with_fenced(False)

    def replay_broker_registration_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._registered(record.broker_id, record.broker_epoch)
        self.changed_brokers[record.broker_id] = broker.merge(record)

    def replay_register_controller(self, record: RegisterControllerRecord) -> None:
        self.changed_controllers[record.controller_id] = ControllerRegistration.from_record(record)

    def replay_unregister_controller(self, record: UnregisterControllerRecord) -> None:
        self.changed_controllers[record.controller_id] = None

    def finish_snapshot(self) -> None:
        for broker_id in self.image.brokers:
            self.changed_brokers.setdefault(broker_id, None)
        for controller_id in self.image.controllers:
            self.changed_controllers.setdefault(controller_id, None)

    def apply(self) -> ClusterImage:
        brokers, controllers = self.image.brokers.mutate(), self.image.controllers.mutate()
        for broker_id, broker in self.changed_brokers.items():
            if broker is None:
                brokers.pop(broker_id, None)
            else:
                brokers[broker_id] = broker
        for controller_id, controller in self.changed_controllers.items():
            if controller is None:
                controllers.pop(controller_id, None)
            else:
                controllers[controller_id] = controller
        return ClusterImage(brokers.finish(), controllers.finish())

    def _registered(self, broker_id: int, epoch: int) -> BrokerRegistration:
        broker = self.broker(broker_id)
        assert broker is not None, f"record for broker {broker_id}, which is not registered"
        assert broker.epoch == epoch, f"record for broker {broker_id} epoch {epoch}, registered is {broker.epoch}"
        return broker
