"""kafka-acls: access control entries, added, listed and removed by resource and principal.

--producer and --consumer stand for the operations that such a client needs on its topics, groups and transactional ids.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from itertools import product
from typing import NamedTuple

from ottla.cli.shims.exceptions import exception
from ottla.cli.shims.tool import ToolParser, given, with_cluster
from ottla.client.access import AclFilter, create_acl, delete_acls, describe_acls
from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure
from ottla.server.authorization import operations as ops
from ottla.server.authorization.acl import AccessControlEntry
from ottla.server.authorization.operations import OPERATIONS, PATTERN_TYPES, PERMISSIONS, RESOURCE_TYPES

ACTIONS = ("list", "add", "remove")
#: The type of resource that each option names.
RESOURCES = {
    "topic": ops.TOPIC,
    "group": ops.GROUP,
    "transactional-id": ops.TRANSACTIONAL_ID,
    "delegation-token": ops.DELEGATION_TOKEN,
    "user-principal": ops.USER,
}
PRODUCER = {
    ops.TOPIC: (ops.WRITE, ops.DESCRIBE, ops.CREATE),
    ops.TRANSACTIONAL_ID: (ops.WRITE, ops.DESCRIBE),
}
CONSUMER = {ops.TOPIC: (ops.READ, ops.DESCRIBE), ops.GROUP: (ops.READ,)}
#: The operations of each resource, as Kafka's tool lists them in its errors.
SUPPORTED = ops.SUPPORTED_OPERATIONS
NO_RESOURCE = (
    "You must provide at least one resource: --topic <topic> or --cluster or --group <group> "
    "or --delegation-token <Delegation Token ID>"
)
NO_PRINCIPAL = "You must specify one of: --allow-principal, --deny-principal when trying to add ACLs."


class AclPattern(NamedTuple):
    """A resource pattern, or a filter of patterns."""

    resource_type: int
    name: str
    pattern_type: int

    def __str__(self) -> str:
        kind, pattern = RESOURCE_TYPES[self.resource_type], PATTERN_TYPES[self.pattern_type]
        return f"ResourcePattern(resourceType={kind}, name={self.name}, patternType={pattern})"


class AclOption(NamedTuple):
    """The subject of an entry: a principal, an operation, a permission and a host."""

    principal: str
    host: str
    operation: int
    permission: int

    def __str__(self) -> str:
        operation, permission = OPERATIONS[self.operation], PERMISSIONS[self.permission]
        return f"(principal={self.principal}, host={self.host}, operation={operation}, permissionType={permission})"


ByPattern = dict[AclPattern, list[AclOption]]


def main(arguments: list[str]) -> int:
    parser = ToolParser("kafka-acls", "This tool helps to manage acls on kafka.")
    parser.missing_bootstrap = "One of --bootstrap-server or --bootstrap-controller must be specified"
    parser.add_bootstrap(controller=True)
    parser.flags(*ACTIONS, "cluster", "idempotent", "producer", "consumer", "force")
    parser.lists(*RESOURCES, "operation", "principal")
    parser.lists("allow-principal", "deny-principal", "allow-host", "deny-host")
    parser.add_argument("--resource-pattern-type", default="literal")
    options = parser.parse(arguments)
    check_options(parser, options)
    try:
        options.pattern = _code(PATTERN_TYPES, options.resource_pattern_type)
        if options.pattern is None or options.pattern == ops.UNKNOWN:
            wrong = f"Cannot parse argument '{options.resource_pattern_type}' of option resource-pattern-type"
            print(f"Error while executing ACL command: {wrong}")
            return 1
        if options.list:
            return with_cluster(options, lambda cluster: show(cluster, options))
        wanted = wanted_of(parser, options)
        run = add if options.add else remove
        return with_cluster(options, lambda cluster: run(cluster, wanted, options.force))
    except WrongPrincipal as wrong_principal:
        print(f"Error while executing ACL command: {wrong_principal}")
    except Failure as failure:
        print(f"Error while executing ACL command: {exception(failure)}")
    return 1


# -- Options ----------------------------------------------------------------------------------------------------------


class WrongPrincipal(ValueError):
    """The text is no principal of the form TYPE:NAME."""


def check_options(parser: ToolParser, options: argparse.Namespace) -> None:
    if sum(getattr(options, action) for action in ACTIONS) != 1:
        parser.usage_error("Command must include exactly one action: --list, --add, --remove. ")
    parser.forbid(
        options, "list", "producer", "consumer", "allow-host", "allow-principal", "deny-host", "deny-principal"
    )
    parser.forbid(options, "producer", "operation", "deny-principal", "deny-host")
    parser.forbid(options, "consumer", "operation", "deny-principal", "deny-host")
    if options.producer and not options.consumer and not options.topic:
        parser.usage_error("With --producer you must specify a --topic")
    if options.idempotent and not options.producer:
        parser.usage_error("The --idempotent option is only available if --producer is set")
    both = options.topic and options.group
    lone = options.cluster or (not options.producer and options.transactional_id)
    if options.consumer and (not both or lone):
        parser.usage_error(
            "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id option should be specified."
        )


def wanted_of(parser: ToolParser, options: argparse.Namespace) -> ByPattern:
    """Return the entries by their resource patterns. Patterns without entries mean all of them."""
    if options.add and options.pattern in (ops.ANY, ops.MATCH):
        name = PATTERN_TYPES[options.pattern]
        parser.usage_error(f"A '--resource-pattern-type' value of '{name}' is not valid when adding acls.")
    patterns = patterns_of(options)
    if not patterns:
        parser.usage_error(NO_RESOURCE)
    found: ByPattern = {}
    if options.producer or options.consumer:
        for is_asked, needed in ((options.producer, PRODUCER), (options.consumer, CONSUMER)):
            for pattern in patterns if is_asked else ():
                if pattern.resource_type in needed:
                    found.setdefault(pattern, []).extend(entries(options, needed[pattern.resource_type]))
        if options.idempotent:
            found[_CLUSTER] = entries(options, [ops.IDEMPOTENT_WRITE])
    else:
        codes = [_code(OPERATIONS, name) or ops.UNKNOWN for name in options.operation] or [ops.ALL]
        found = {pattern: entries(options, codes) for pattern in patterns}
    for pattern, rows in found.items():
        supported = {*SUPPORTED[pattern.resource_type], ops.ALL}
        if any(row.operation not in supported for row in rows):
            names = ", ".join(OPERATIONS[code] for code in sorted(supported))
            kind = RESOURCE_TYPES[pattern.resource_type]
            parser.usage_error(f"ResourceType {kind} only supports operations [{names}]")
    if options.add and not all(found.values()):
        parser.usage_error(NO_PRINCIPAL)
    return found


_CLUSTER = AclPattern(ops.CLUSTER, ops.CLUSTER_NAME, ops.LITERAL)


def patterns_of(options: argparse.Namespace) -> list[AclPattern]:
    found = [
        AclPattern(kind, name.strip(), options.pattern)
        for option, kind in RESOURCES.items()
        for name in getattr(options, option.replace("-", "_"))
    ]
    if options.pattern == ops.LITERAL and (options.cluster or options.idempotent):
        found.append(_CLUSTER)
    return found


def entries(options: argparse.Namespace, operations: Iterable[int]) -> list[AclOption]:
    found = []
    for permission, which in ((ops.ALLOW, "allow"), (ops.DENY, "deny")):
        principals = [_principal(text) for text in getattr(options, f"{which}_principal")]
        hosts = [host.strip() for host in getattr(options, f"{which}_host")] or [ops.WILDCARD]
        found += [AclOption(*row, permission) for row in product(principals, hosts, operations)]
    return found


def _principal(text: str) -> str:
    kind, colon, name = text.strip().partition(":")
    if not (colon and kind and name):
        raise WrongPrincipal(f"expected a string in format principalType:principalName but got {text.strip()}")
    return text.strip()


def _code(names: Mapping[int, str], text: str) -> int | None:
    """Return the code of a name; case, underscores and dashes do not matter."""
    plain = text.strip().upper().replace("_", "").replace("-", "")
    return next((code for code, name in names.items() if name.replace("_", "") == plain), None)


# -- Actions ----------------------------------------------------------------------------------------------------------


async def show(cluster: ClusterClient, options: argparse.Namespace) -> int:
    principals = [_principal(text) for text in options.principal]
    filters = [AclFilter(*pattern) for pattern in patterns_of(options)] or [AclFilter()]
    found: ByPattern = {}
    for wanted in filters:
        for entry in await describe_acls(cluster, wanted):
            rows = found.setdefault(AclPattern(*entry[:3]), [])
            if (access := AclOption(*entry[3:])) not in rows:
                rows.append(access)
    for principal in principals:
        print(f"ACLs for principal `{principal}`")
        _print(
            {
                pattern: rows
                for pattern, every in found.items()
                if (rows := [row for row in every if row.principal == principal])
            }
        )
    if not given(options, "principal"):
        _print(found)
    return 0


def _print(found: ByPattern) -> None:
    for pattern, rows in found.items():
        lines = "\n".join(f"\t{row}" for row in rows)
        print(f"Current ACLs for resource `{pattern}`:\n{lines}\n")


async def add(cluster: ClusterClient, wanted: ByPattern, force: bool) -> int:
    for pattern, rows in wanted.items():
        for row in rows:
            await create_acl(cluster, _entry(pattern, row))
        lines = "\n".join(f"\t{row}" for row in rows)
        print(f"Adding ACLs for resource `{pattern}`: \n {lines} \n")
    return 0


def _entry(pattern: AclPattern, row: AclOption) -> AccessControlEntry:
    return AccessControlEntry(
        pattern.resource_type,
        pattern.name,
        pattern.pattern_type,
        row.principal,
        row.host,
        row.operation,
        row.permission,
    )


async def remove(cluster: ClusterClient, wanted: ByPattern, force: bool) -> int:
    for pattern, rows in wanted.items():
        if rows:
            lines = "\n".join(f"\t{row}" for row in rows)
            question = f"Are you sure you want to remove ACLs: \n {lines} \n from resource filter `{pattern}`? (y/n)"
        else:
            question = f"Are you sure you want to delete all ACLs for resource filter `{pattern}`? (y/n)"
        if not force:
            print(question)
            if sys.stdin.readline().strip().lower() != "y":
                continue
        for filter_ in [AclFilter(*_entry(pattern, row)) for row in rows] or [AclFilter(*pattern)]:
            await delete_acls(cluster, filter_)
    return 0
