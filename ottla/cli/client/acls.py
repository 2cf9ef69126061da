"""Reading and changing access control entries."""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.cli.client.cluster import ClusterClient
from ottla.cli.client.configs import describe_configs
from ottla.cli.client.failures import check
from ottla.cli.errors import USAGE, CommandFailed, did_you_mean
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from ottla.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.server.authorization.acl import AccessControlEntry
from ottla.server.authorization.authorizer import FileRules, file_rules
from ottla.server.authorization.operations import ANY, CLUSTER, CLUSTER_NAME, MATCH, OPERATIONS, RESOURCE_TYPES
from ottla.server.config.broker import AUTHORIZER_CONFIGS


class AclFilter(NamedTuple):
    """A filter of entries: its fields must match, absent ones match everything."""

    resource_type: int = ANY
    resource_name: str | None = None
    pattern_type: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission_type: int = ANY

    def fields(self) -> dict[str, Any]:
        """Returns the fields by their names in requests."""
        return {
            "resource_type_filter": self.resource_type,
            "resource_name_filter": self.resource_name,
            "pattern_type_filter": self.pattern_type,
            "principal_filter": self.principal,
            "host_filter": self.host,
            "operation": self.operation,
            "permission_type": self.permission_type,
        }


def applying_to(resource_type: int, name: str) -> AclFilter:
    """All entries that count for a resource."""
    return AclFilter(resource_type, name, MATCH)


async def describe_acls(cluster: ClusterClient, wanted: AclFilter) -> list[AccessControlEntry]:
    cluster.doing = "reading the access control entries"
    answer: DescribeAclsResponse = await cluster.request(DescribeAclsRequest(**wanted.fields()))
    check("access control entries", answer.error_code, answer.error_message)
    return sorted(
        AccessControlEntry(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in answer.resources
        for acl in resource.acls
    )


async def described_rules(cluster: ClusterClient) -> FileRules | None:
    """Return what a broker's file adds to the entries; None if the broker does not say so, or not to this user."""
    broker = min(found.node_id for found in (await cluster.metadata([])).brokers)
    try:
        rows = await describe_configs(cluster, "broker", str(broker), sorted(AUTHORIZER_CONFIGS))
    except CommandFailed:
        return None
    if any(row.is_sensitive for row in rows):
        return None
    return file_rules({row.name: row.value or "" for row in rows})


async def create_acl(cluster: ClusterClient, entry: AccessControlEntry) -> None:
    creation = AclCreation(
        resource_type=entry.resource_type,
        resource_name=entry.resource_name,
        resource_pattern_type=entry.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission_type,
    )
    cluster.doing = "adding an access control entry"
    answer: CreateAclsResponse = await cluster.request(CreateAclsRequest(creations=[creation]))
    check("access control entry", answer.results[0].error_code, answer.results[0].error_message)


async def delete_acls(cluster: ClusterClient, wanted: AclFilter) -> int:
    """Delete the matching entries; returns their number."""
    cluster.doing = "removing access control entries"
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**wanted.fields())])
    answer: DeleteAclsResponse = await cluster.request(request)
    (result,) = answer.filter_results
    check("access control entries", result.error_code, result.error_message)
    return len(result.matching_acls)


# -- Words of the command line ---------------------------------------------------------------------------------------


def read_principal(text: str) -> str:
    return text if ":" in text else f"User:{text}"


def read_operation(text: str) -> int:
    name = text.upper().replace("-", "_")
    code = next((code for code, known in OPERATIONS.items() if known == name and code > ANY), None)
    if code is None:
        names = [known.lower().replace("_", "-") for code, known in OPERATIONS.items() if code > ANY]
        raise CommandFailed(f"there is no operation {text!r}", did_you_mean(text, names) or ", ".join(names), USAGE)
    return code


def read_resource(text: str) -> tuple[int, str]:
    kind, colon, name = text.partition(":")
    if kind == "cluster" and not colon:
        return CLUSTER, CLUSTER_NAME
    code = next((code for code in RESOURCE_TYPES if code > ANY and kind_text(code) == kind), None)
    if code is None or not name:
        kinds = ", ".join(f"{kind_text(code)}:NAME" for code in RESOURCE_TYPES if code > ANY and code != CLUSTER)
        raise CommandFailed(f"{text!r} is no resource", f"cluster, or one of {kinds}", USAGE)
    return code, name


def kind_text(code: int) -> str:
    return RESOURCE_TYPES[code].lower().replace("_", "-")
