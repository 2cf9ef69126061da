"""Reading and changing client quotas (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.client.cluster import ClusterClient
from ottla.client.cluster_error import check
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryDataRequest,
    OpData,
)
from ottla.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntryData,
)
from ottla.protocol.messages.shared_structs import EntityData

_EXACT, _DEFAULT = 0, 1

#: Type -> name, None for the default entity.
Entity = Mapping[str, str | None]


async def describe_quotas(cluster: ClusterClient, entity: Entity) -> list[EntryData]:
    """Return the quotas of all entities that have each of these parts."""
    components = [
        ComponentData(entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name)
        for kind, name in entity.items()
    ]
    cluster.doing = "reading the quotas"
    response: DescribeClientQuotasResponse = await cluster.request(DescribeClientQuotasRequest(components=components))
    check("quotas", response.error_code, response.error_message)
    return response.entries or []


async def alter_quotas(
    cluster: ClusterClient, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool = False
) -> None:
    """Set each quota to its value, or remove it where that is None."""
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()]
    parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    request = AlterClientQuotasRequest(entries=[EntryDataRequest(entity=parts, ops=ops)], validate_only=validate_only)
    cluster.doing = "changing the quotas"
    response: AlterClientQuotasResponse = await cluster.request(request)
    check("quotas", response.entries[0].error_code, response.entries[0].error_message)
