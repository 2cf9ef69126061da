"""The decision written out over a plain list of entries, with which the index is compared.

It is slow, and as literal as possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

from ottla.server.authorization.acl import AccessControlEntry, Decision

ALL, READ, WRITE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = 2, 3, 4, 6, 7, 8, 10, 11
LITERAL, PREFIXED, DENY, ALLOW = 3, 4, 2, 3

IMPLIED_BY = {DESCRIBE: {DESCRIBE, READ, WRITE, DELETE, ALTER}, DESCRIBE_CONFIGS: {DESCRIBE_CONFIGS, ALTER_CONFIGS}}


def covers(entry: AccessControlEntry, resource_type: int, name: str) -> bool:
    if entry.resource_type != resource_type:
        return False
    if entry.pattern_type == PREFIXED:
        return name.startswith(entry.resource_name)
    return entry.resource_name in ("*", name)


def is_host(pattern: str, host: str) -> bool:
    """Match a network bit by bit (KIP-1276)."""
    if "/" not in pattern or "*" in (pattern, host):
        return pattern in ("*", host)
    try:
        network, address = ip_address(pattern.split("/")[0]), ip_address(host)
        bits = int(pattern.split("/")[1])
    except ValueError:
        return False
    shift = address.max_prefixlen - bits
    return network.version == address.version and shift >= 0 and int(network) >> shift == int(address) >> shift


def matches(entry: AccessControlEntry, principal: str, host: str, operation: int) -> bool:
    if entry.principal not in ("User:*", principal) or not is_host(entry.host, host):
        return False
    enough = {operation, ALL}
    if entry.permission_type == ALLOW:
        enough |= IMPLIED_BY.get(operation, set())
    return entry.operation in enough


def decide(
    entries: Sequence[AccessControlEntry], principal: str, host: str, operation: int, resource_type: int, name: str
) -> Decision:
    about = [entry for entry in entries if covers(entry, resource_type, name)]
    matching = [entry for entry in about if matches(entry, principal, host, operation)]
    if any(entry.permission_type == DENY for entry in matching):
        return Decision.DENIED
    if matching:
        return Decision.ALLOWED
    return Decision.NO_MATCH if about else Decision.NO_ACL


def allows_any(
    entries: Sequence[AccessControlEntry], principal: str, host: str, operation: int, resource_type: int
) -> bool:
    """KIP-679: an allowed pattern is of use unless a denied one covers all of it. Only the operation itself or ALL counts."""
    mine = [
        entry
        for entry in entries
        if entry.resource_type == resource_type
        and entry.principal in ("User:*", principal)
        and is_host(entry.host, host)
        and entry.operation in (operation, ALL)
    ]
    denied = [entry for entry in mine if entry.permission_type == DENY]
    if any(entry.pattern_type == LITERAL and entry.resource_name == "*" for entry in denied):
        return False
    for entry in mine:
        if entry.permission_type != ALLOW:
            continue
        if entry.pattern_type == LITERAL and entry.resource_name == "*":
            return True
        if not any(
            entry.resource_name.startswith(other.resource_name)
            if other.pattern_type == PREFIXED
            else entry.pattern_type == LITERAL and other.resource_name == entry.resource_name
            for other in denied
        ):
            return True
    return False
