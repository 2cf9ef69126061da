"""Creation and deletion of access control entries. Brokers describe them and authorize requests by them."""

from __future__ import annotations

from random import Random

from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.outcome import Outcome, check_records_max
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.metadata_records import (
    AccessControlEntryRecord,
    MetadataRecord,
    RemoveAccessControlEntryRecord,
)
from ottla.protocol.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ottla.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.protocol.primitives import new_uuid
from ottla.server.authorization.acl import CIDR, AccessControlEntry, matches_filter, read_network
from ottla.server.authorization.operations import (
    CLUSTER,
    CLUSTER_NAME,
    LITERAL,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    PREFIXED,
    RESOURCE_TYPES,
)


def create_acls(state: ControlState, request: CreateAclsRequest, rng: Random) -> Outcome[CreateAclsResponse]:
    """Create entries. For an existing entry the result is success, and no record is written."""
    existing = set(state.image.acls.entries.values())
    records: list[MetadataRecord] = []
    results = []
    for creation in request.creations:
        try:
            _check(creation)
        except KafkaError as error:
            results.append(AclCreationResult(error_code=error.code, error_message=error.message))
            continue
        results.append(AclCreationResult(error_message=""))  # not null, as in Kafka
        entry = AccessControlEntry(
            creation.resource_type,
            creation.resource_name,
            creation.resource_pattern_type,
            creation.principal,
            creation.host,
            creation.operation,
            creation.permission_type,
        )
        if entry in existing:
            continue
        existing.add(entry)
        records.append(AccessControlEntryRecord(new_uuid(rng), *entry))
    check_records_max(len(records))
    return Outcome(records, CreateAclsResponse(results=results))


def _check(creation: AclCreation) -> None:
    def reject(message: str) -> KafkaError:
        return KafkaError(ErrorCode.INVALID_REQUEST, message)

    resource = RESOURCE_TYPES.get(creation.resource_type, "UNKNOWN")
    if resource in ("UNKNOWN", "ANY"):
        raise reject(f"Invalid resourceType {resource}")
    if creation.resource_pattern_type not in (LITERAL, PREFIXED):
        raise reject(f"Invalid patternType {PATTERN_TYPES.get(creation.resource_pattern_type, 'UNKNOWN')}")
    operation = OPERATIONS.get(creation.operation, "UNKNOWN")
    if operation in ("UNKNOWN", "ANY"):
        raise reject(f"Invalid operation {operation}")
    permission = PERMISSIONS.get(creation.permission_type, "UNKNOWN")
    if permission in ("UNKNOWN", "ANY"):
        raise reject(f"Invalid permissionType {permission}")
    if CIDR in creation.host and read_network(creation.host) is None:
        # A DENY for it would never match.
        raise reject(f"Invalid host {creation.host}: a network is written as address/bits, such as 10.0.0.0/8")
    if not creation.resource_name:
        raise reject("Invalid empty resource name")
    if creation.resource_type == CLUSTER and creation.resource_name != CLUSTER_NAME:
        raise reject(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if ":" not in creation.principal:
        raise reject("Could not parse principal from `" + creation.principal + "` (no colon is present separating"
                     " the principal type from the principal name)")  # fmt: skip


def delete_acls(state: ControlState, request: DeleteAclsRequest) -> Outcome[DeleteAclsResponse]:
    removed: dict[bytes, None] = {}
    results = []
    for wanted in request.filters:
        if _is_unknown(wanted):
            results.append(
                DeleteAclsFilterResult(
                    error_code=ErrorCode.INVALID_REQUEST, error_message="The filter has an unknown type in it."
                )
            )
            continue
        matching = {
            entry_id: entry for entry_id, entry in state.image.acls.entries.items() if matches_filter(wanted, entry)
        }
        removed |= dict.fromkeys(matching)
        found = [DeleteAclsMatchingAcl(ErrorCode.NONE, None, *entry) for entry in matching.values()]
        results.append(DeleteAclsFilterResult(error_message=None, matching_acls=found))
    records: list[MetadataRecord] = [RemoveAccessControlEntryRecord(id=entry_id) for entry_id in sorted(removed)]
    check_records_max(len(records))
    return Outcome(records, DeleteAclsResponse(filter_results=results))


def _is_unknown(wanted: DeleteAclsFilter) -> bool:
    return (
        RESOURCE_TYPES.get(wanted.resource_type_filter, "UNKNOWN") == "UNKNOWN"
        or PATTERN_TYPES.get(wanted.pattern_type_filter, "UNKNOWN") == "UNKNOWN"
        or OPERATIONS.get(wanted.operation, "UNKNOWN") == "UNKNOWN"
        or PERMISSIONS.get(wanted.permission_type, "UNKNOWN") == "UNKNOWN"
    )
