"""Dynamic configs by resource, as in the log. Effective values (with defaults and synonyms) are computed in server/config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import IntEnum

from ottla.controller.metadata.shared_map import Map, changed_maps, remove_others_of_maps
from ottla.protocol.internal_topics.metadata_records import ConfigRecord, MetadataRecord
from ottla.protocol.releases import Release
from ottla.protocol.slotted import frozen


class ResourceType(IntEnum):
    """ConfigResource.Type of Kafka."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


#: The releases of Kafka from which on configurations of these resources can be described and altered (KIP-714, KIP-848).
SINCE = {ResourceType.CLIENT_METRICS.value: "3.7", ResourceType.GROUP.value: "4.0"}


def has_configs(release: Release, resource_type: int) -> bool:
    """Return False for a type of resource that came after the release."""
    return release.name >= SINCE.get(resource_type, "")


Resource = tuple[int, str]
_NONE: Map[str, str] = Map()


@frozen
class ConfigsImage:
    resources: Map[Resource, Map[str, str]] = field(default_factory=Map)

    def for_resource(self, resource_type: int, name: str) -> Map[str, str]:
        return self.resources.get((int(resource_type), name), _NONE)

    def for_topic(self, name: str) -> Map[str, str]:
        return self.resources.get((ResourceType.TOPIC.value, name), _NONE)

    def for_broker(self, broker_id: int | str) -> Map[str, str]:
        """Return one broker's configs; the empty name has the cluster-wide default of all brokers."""
        return self.resources.get((ResourceType.BROKER.value, str(broker_id)), _NONE)

    def for_group(self, group_id: str) -> Map[str, str]:
        return self.resources.get((ResourceType.GROUP.value, group_id), _NONE)

    def for_client_metrics(self, subscription: str) -> Map[str, str]:
        return self.resources.get((ResourceType.CLIENT_METRICS.value, subscription), _NONE)

    def names(self, resource_type: int) -> list[str]:
        """Return the resources of one type that have a config."""
        return sorted(name for kind, name in self.resources if kind == resource_type)

    def to_records(self) -> Iterator[MetadataRecord]:
        for (kind, resource_name), configs in sorted(self.resources.items(), key=lambda item: item[0]):
            for name, value in sorted(configs.items()):
                yield ConfigRecord(resource_type=kind, resource_name=resource_name, name=name, value=value)


class ConfigsDelta:
    """Changes of configs: `changes[resource]` maps config names to new values, None if the config was removed."""

    __slots__ = ("changes", "image")

    def __init__(self, image: ConfigsImage) -> None:
        self.image = image
        self.changes: dict[Resource, dict[str, str | None]] = {}

    @property
    def changed_resources(self) -> Mapping[Resource, Mapping[str, str | None]]:
        return self.changes

    def replay_config(self, record: ConfigRecord) -> None:
        resource = (int(record.resource_type), record.resource_name)
        self.changes.setdefault(resource, {})[record.name] = record.value

    def delete_topic(self, name: str) -> None:
        resource = (ResourceType.TOPIC.value, name)
        before = self.image.resources.get(resource, _NONE)
        if before:
            self.changes[resource] = dict.fromkeys(before)
        else:
            self.changes.pop(resource, None)

    def finish_snapshot(self) -> None:
        remove_others_of_maps(self.image.resources, self.changes)

    def apply(self) -> ConfigsImage:
        return ConfigsImage(changed_maps(self.image.resources, self.changes))
