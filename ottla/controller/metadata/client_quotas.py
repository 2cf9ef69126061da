"""Client quotas by entity: a user, a client id, an ip, or a pair of the first two; a None name is the default entity."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from ottla.controller.metadata.shared_map import Map, changed_maps, remove_others_of_maps
from ottla.protocol.internal_topics.metadata_records import ClientQuotaRecord, MetadataRecord
from ottla.protocol.messages.shared_structs import EntityData
from ottla.protocol.slotted import frozen

# ((entity type, entity name or None), ...) sorted by type, so that equal entities are equal keys.
QuotaEntity = tuple[tuple[str, str | None], ...]
_NONE: Map[str, float] = Map()


def quota_entity(parts: dict[str, str | None]) -> QuotaEntity:
    return tuple(sorted(parts.items(), key=lambda part: part[0]))


def _order(entity: QuotaEntity) -> list[tuple[str, bool, str]]:
    """Return the sort key of an entity: the default entity, which has no name, comes first of its type."""
    return [(kind, name is not None, name or "") for kind, name in entity]


@frozen
class ClientQuotasImage:
    entities: Map[QuotaEntity, Map[str, float]] = field(default_factory=Map)

    def quotas(self, entity: QuotaEntity) -> Map[str, float]:
        return self.entities.get(entity, _NONE)

    def to_records(self) -> Iterator[MetadataRecord]:
        for entity, quotas in sorted(self.entities.items(), key=lambda item: _order(item[0])):
            parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
            for key, value in sorted(quotas.items()):
                yield ClientQuotaRecord(entity=parts, key=key, value=value, remove=False)


class ClientQuotasDelta:
    """Changes of client quotas: `changes[entity]` maps quota keys to new values, None if the key was removed."""

    __slots__ = ("changes", "image")

    def __init__(self, image: ClientQuotasImage) -> None:
        self.image = image
        self.changes: dict[QuotaEntity, dict[str, float | None]] = {}

    def replay_client_quota(self, record: ClientQuotaRecord) -> None:
        entity = quota_entity({part.entity_type: part.entity_name for part in record.entity})
        self.changes.setdefault(entity, {})[record.key] = None if record.remove else record.value

    def finish_snapshot(self) -> None:
        remove_others_of_maps(self.image.entities, self.changes)

    def apply(self) -> ClientQuotasImage:
        return ClientQuotasImage(changed_maps(self.image.entities, self.changes))
