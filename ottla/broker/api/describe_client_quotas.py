"""DescribeClientQuotas (48): the quotas of the entities that fit a filter (KIP-546).

A component asks for one type: one name, the default, or any. Strict: entities with a type that was not asked for do not fit.

Errors:
    INVALID_REQUEST      a component is empty, twice there, or contradicts its match type; ip is beside another type
    UNSUPPORTED_VERSION  the entity type is unknown
"""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntryData,
    ValueData,
)
from ottla.protocol.messages.shared_structs import EntityData
from ottla.server.network.context import RequestContext
from ottla.server.quotas.clients import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    Entity,
)

EXACT, DEFAULT, ANY = 0, 1, 2
#: The order in which Kafka has an entity's values. It is that of a hash map in Java, but clients' tests pin it.
ORDER = (CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, PRODUCER_BYTE_RATE, CONTROLLER_MUTATION_RATE, CONNECTION_CREATION_RATE)


def handle(
    broker: BrokerComponents, request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    asked = _asked(request.components)
    entries = [
        EntryData(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            values=[ValueData(key=key, value=value) for key in ORDER if (value := values.get(key)) is not None],
        )
        for entity, values in broker.metadata.image.client_quotas.entities.items()
        if _fits(entity, asked, strict=request.strict)
    ]
    return DescribeClientQuotasResponse(error_message=None, entries=entries)


def _asked(components: list[ComponentData]) -> dict[str, ComponentData]:
    asked: dict[str, ComponentData] = {}
    for component in components:
        kind = component.entity_type
        if not kind:
            raise _reject("Invalid empty entity type.")
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{kind}' not supported")
        if kind in asked:
            raise _reject(f"Entity type {kind} cannot appear more than once in the filter.")
        if component.match_type == EXACT and component.match is None:
            raise _reject("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if component.match_type in (DEFAULT, ANY) and component.match is not None:
            name = "MATCH_TYPE_DEFAULT" if component.match_type == DEFAULT else "MATCH_TYPE_SPECIFIED"
            raise _reject(f"Request specified {name}, but also specified a match string.")
        if component.match_type not in (EXACT, DEFAULT, ANY):
            raise _reject(f"Unknown match type {component.match_type}")
        asked[kind] = component
    if IP in asked and len(asked) > 1:
        raise _reject(
            "Invalid entity filter component combination, IP filter component should not be used with user or clientId filter component."
        )
    return asked


def _fits(entity: Entity, asked: dict[str, ComponentData], *, strict: bool) -> bool:
    parts = dict(entity)
    if strict and len(parts) != len(asked):
        return False
    return all(kind in parts and _is_wanted(component, parts[kind]) for kind, component in asked.items())


def _is_wanted(component: ComponentData, name: str | None) -> bool:
    if component.match_type == EXACT:
        return name == component.match
    return component.match_type == ANY or name is None


def _reject(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
