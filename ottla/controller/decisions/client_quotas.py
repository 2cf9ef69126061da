"""AlterClientQuotas (KIP-546): the valid entities, quota keys and values."""

from __future__ import annotations

import ipaddress
import re

from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.outcome import Outcome, check_records_max
from ottla.controller.metadata.client_quotas import quota_entity
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.metadata_records import ClientQuotaRecord, MetadataRecord
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryDataRequest,
    EntryDataResponse,
)
from ottla.protocol.messages.shared_structs import EntityData

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

_INT_MAX = (1 << 31) - 1
_LONG_MAX = (1 << 63) - 1
# key -> largest value; None: any number, also with a fraction
USER_AND_CLIENT_QUOTAS: dict[str, int | None] = {
    "producer_byte_rate": _LONG_MAX,
    "consumer_byte_rate": _LONG_MAX,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
IP_QUOTAS: dict[str, int | None] = {"connection_creation_rate": _INT_MAX}
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", re.ASCII)


def alter_client_quotas(state: ControlState, request: AlterClientQuotasRequest) -> Outcome[AlterClientQuotasResponse]:
    records: list[MetadataRecord] = []
    response = AlterClientQuotasResponse()
    seen = set()
    for entry in request.entries:
        in_order = sorted(entry.entity, key=lambda part: part.entity_type)
        result = EntryDataResponse(error_message=None, entity=in_order)
        response.entries.append(result)
        try:
            parts = _entity(entry)
            entity = quota_entity(parts)
            if entity in seen:
                raise _reject(f"Ignoring duplicate entity {_text(parts)}")
            seen.add(entity)
            records += _alter(state, parts, entry)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
    check_records_max(len(records))
    return Outcome([] if request.validate_only else records, response)


def _entity(entry: EntryDataRequest) -> dict[str, str | None]:
    parts: dict[str, str | None] = {}
    for part in entry.entity:
        if part.entity_type in parts:
            raise _reject(f"Invalid client quota entity, duplicate entity entry {part.entity_type}")
        if part.entity_type not in (USER, CLIENT_ID, IP):
            raise _reject(f"Unhandled client quota entity type: {part.entity_type}")
        if part.entity_name == "":
            raise _reject(f"Empty {part.entity_type} not supported")
        parts[part.entity_type] = part.entity_name
    if not parts:
        raise _reject("Invalid empty client quota entity")
    if IP in parts:
        if len(parts) > 1:
            raise _reject("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
        name = parts[IP]
        if name is not None and not _is_host(name):
            raise _reject(f"{name} is not a valid IP or resolvable host.")
    return dict(sorted(parts.items()))  # the order of Kafka's responses: client-id, user


def _is_host(name: str) -> bool:
    """Return True for any well-formed host name. Kafka resolves it here, but a decision must not wait for a name server."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return _HOST_NAME.fullmatch(name) is not None
    return True


def _alter(state: ControlState, parts: dict[str, str | None], entry: EntryDataRequest) -> list[MetadataRecord]:
    known = IP_QUOTAS if IP in parts else USER_AND_CLIENT_QUOTAS
    current = state.image.client_quotas.quotas(quota_entity(parts))
    entity = [EntityData(entity_type=kind, entity_name=name) for kind, name in parts.items()]
    records: list[MetadataRecord] = []
    keys = set()
    for op in entry.ops:
        if op.key in keys:
            raise _reject(f"Ignoring duplicate entity {_text(parts)}")
        keys.add(op.key)
        if op.remove:
            if op.key in current:
                records.append(ClientQuotaRecord(entity=entity, key=op.key, remove=True))
            continue
        _check_value(known, op.key, op.value)
        if current.get(op.key) != op.value:
            records.append(ClientQuotaRecord(entity=entity, key=op.key, value=op.value, remove=False))
    return records


def _check_value(known: dict[str, int | None], key: str, value: float) -> None:
    if key not in known:
        raise _reject(f"Invalid configuration key {key}")
    if not value > 0:  # NaN is rejected, too
        raise _reject(f"Quota {key} must be greater than 0")
    highest = known[key]
    if highest is None:
        return
    if value > highest:
        raise _reject(f"Proposed value for {key} is too large for {'an INT' if highest == _INT_MAX else 'a LONG'}.")
    if value % 1.0 > 1e-6:
        raise _reject(f"{key} cannot be a fractional value.")


def _text(parts: dict[str, str | None]) -> str:
    """Format an entity as Java prints it."""
    entries = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in parts.items())
    return f"ClientQuotaEntity(entries={{{entries}}})"


def _reject(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
