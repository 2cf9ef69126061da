"""Creating and deleting access control entries. Describing them and judging requests by them is the brokers' work."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from controller.control.outcome import Outcome, check_records_max
from controller.control.state import ControlState
from controller.metadata.acls import AccessControlEntry
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_acls import AclCreation, AclCreationResult
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsFilterResult, DeleteAclsMatchingAcl
from protocol.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from protocol.primitives import new_uuid

UNKNOWN = 0
ANY = 1

# ResourceType, AclOperation and PatternType of Kafka: code -> name
RESOURCE_TYPES = {
    0: "UNKNOWN", 1: "ANY", 2: "TOPIC", 3: "GROUP", 4: "CLUSTER", 5: "TRANSACTIONAL_ID", 6: "DELEGATION_TOKEN", 7: "USER",
}  # fmt: skip
OPERATIONS = {
    0: "UNKNOWN", 1: "ANY", 2: "ALL", 3: "READ", 4: "WRITE", 5: "CREATE", 6: "DELETE", 7: "ALTER", 8: "DESCRIBE",
    9: "CLUSTER_ACTION", 10: "DESCRIBE_CONFIGS", 11: "ALTER_CONFIGS", 12: "IDEMPOTENT_WRITE", 13: "CREATE_TOKENS",
    14: "DESCRIBE_TOKENS", 15: "TWO_PHASE_COMMIT",
}  # fmt: skip
PATTERN_TYPES = {0: "UNKNOWN", 1: "ANY", 2: "MATCH", 3: "LITERAL", 4: "PREFIXED"}
PERMISSIONS = {0: "UNKNOWN", 1: "ANY", 2: "DENY", 3: "ALLOW"}

CLUSTER = 4
CLUSTER_NAME = "kafka-cluster"
MATCH = 2
LITERAL = 3
PREFIXED = 4
WILDCARD = "*"


def create_acls(state: ControlState, creations: Sequence[AclCreation], rng: Random) -> Outcome[list[AclCreationResult]]:
    """An entry that is there already is created once more with success, and not written again."""
    existing = set(state.image.acls.entries.values())
    records: list[Any] = []
    results = []
    for creation in creations:
        try:
            _check(creation)
        except KafkaError as error:
            results.append(AclCreationResult(error_code=error.code, error_message=error.message))
            continue
        results.append(AclCreationResult(error_message=None))
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
        records.append(
            AccessControlEntryRecord(
                id=new_uuid(rng),
                resource_type=entry.resource_type,
                resource_name=entry.resource_name,
                pattern_type=entry.pattern_type,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission_type,
            )
        )
    check_records_max(records)
    return Outcome(records, results)


def _check(creation: AclCreation) -> None:
    def refuse(message: str) -> KafkaError:
        return KafkaError(ErrorCode.INVALID_REQUEST, message)

    resource = RESOURCE_TYPES.get(creation.resource_type, "UNKNOWN")
    if resource in ("UNKNOWN", "ANY"):
        raise refuse(f"Invalid resourceType {resource}")
    if creation.resource_pattern_type not in (LITERAL, PREFIXED):
        raise refuse(f"Invalid patternType {PATTERN_TYPES.get(creation.resource_pattern_type, 'UNKNOWN')}")
    operation = OPERATIONS.get(creation.operation, "UNKNOWN")
    if operation in ("UNKNOWN", "ANY"):
        raise refuse(f"Invalid operation {operation}")
    permission = PERMISSIONS.get(creation.permission_type, "UNKNOWN")
    if permission in ("UNKNOWN", "ANY"):
        raise refuse(f"Invalid permissionType {permission}")
    if not creation.resource_name:
        raise refuse("Invalid empty resource name")
    if creation.resource_type == CLUSTER and creation.resource_name != CLUSTER_NAME:
        raise refuse(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if ":" not in creation.principal:
        raise refuse("Could not parse principal from `" + creation.principal + "` (no colon is present separating"
                     " the principal type from the principal name)")  # fmt: skip


def delete_acls(state: ControlState, filters: Sequence[DeleteAclsFilter]) -> Outcome[list[DeleteAclsFilterResult]]:
    removed: dict[bytes, None] = {}
    results = []
    for wanted in filters:
        if _is_unknown(wanted):
            results.append(
                DeleteAclsFilterResult(
                    error_code=ErrorCode.INVALID_REQUEST, error_message="The filter has an unknown type in it."
                )
            )
            continue
        matching = [(entry_id, entry) for entry_id, entry in state.image.acls.entries.items() if matches(wanted, entry)]
        removed |= {entry_id: None for entry_id, _ in matching}
        results.append(
            DeleteAclsFilterResult(
                error_message=None,
                matching_acls=[
                    DeleteAclsMatchingAcl(
                        error_message=None,
                        resource_type=entry.resource_type,
                        resource_name=entry.resource_name,
                        pattern_type=entry.pattern_type,
                        principal=entry.principal,
                        host=entry.host,
                        operation=entry.operation,
                        permission_type=entry.permission_type,
                    )
                    for _, entry in matching
                ],
            )
        )
    records: list[Any] = [RemoveAccessControlEntryRecord(id=entry_id) for entry_id in sorted(removed)]
    check_records_max(records)
    return Outcome(records, results)


def _is_unknown(wanted: DeleteAclsFilter) -> bool:
    return (
        RESOURCE_TYPES.get(wanted.resource_type_filter, "UNKNOWN") == "UNKNOWN"
        or PATTERN_TYPES.get(wanted.pattern_type_filter, "UNKNOWN") == "UNKNOWN"
        or OPERATIONS.get(wanted.operation, "UNKNOWN") == "UNKNOWN"
        or PERMISSIONS.get(wanted.permission_type, "UNKNOWN") == "UNKNOWN"
    )


def matches(wanted: DeleteAclsFilter, entry: AccessControlEntry) -> bool:
    """Null and ANY match everything; MATCH finds every entry that would apply to a resource of that name."""
    return (
        wanted.resource_type_filter in (ANY, entry.resource_type)
        and _pattern_matches(wanted.pattern_type_filter, wanted.resource_name_filter, entry)
        and wanted.principal_filter in (None, entry.principal)
        and wanted.host_filter in (None, entry.host)
        and wanted.operation in (ANY, entry.operation)
        and wanted.permission_type in (ANY, entry.permission_type)
    )


def _pattern_matches(pattern_type: int, name: str | None, entry: AccessControlEntry) -> bool:
    if pattern_type not in (ANY, MATCH, entry.pattern_type):
        return False
    if name is None or entry.resource_name == name:
        return True
    if pattern_type != MATCH:
        return False
    if entry.pattern_type == LITERAL:
        return entry.resource_name == WILDCARD
    return name.startswith(entry.resource_name)
