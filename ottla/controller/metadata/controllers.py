"""A controller's registration (KIP-919): its endpoints and supported features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.controller.metadata.brokers import FeatureRange, RegisteredEndpoint
from ottla.protocol.internal_topics.metadata_records import RegisterControllerRecord
from ottla.protocol.messages.shared_structs import Feature, Listener


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
            endpoints={
                e.name: RegisteredEndpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points
            },
            features={f.name: FeatureRange(f.min_supported_version, f.max_supported_version) for f in record.features},
            zk_migration_ready=record.zk_migration_ready,
        )

    def to_record(self) -> RegisterControllerRecord:
        return RegisterControllerRecord(
            controller_id=self.id,
            incarnation_id=self.incarnation_id,
            zk_migration_ready=self.zk_migration_ready,
            end_points=[
                Listener(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in self.endpoints.values()
            ],
            features=[
                Feature(name=name, min_supported_version=span.min_version, max_supported_version=span.max_version)
                for name, span in self.features.items()
            ],
        )
