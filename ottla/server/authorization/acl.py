"""Access control entries, indexed by the names in their patterns, and the decision about one action.

The decision is that of Kafka's StandardAuthorizer, for an operation of a principal on a host, on a resource:

    1   the entries count whose pattern covers the name: literal, the same name · literal "*", every name · prefixed, its
        beginning
    2   of those, entries match whose principal is the caller's or "User:*", whose host is the caller's, a network with it or
        "*" (KIP-1276: 10.0.0.0/8), and whose operation is the requested one or ALL; to allow DESCRIBE, one of IMPLIES_DESCRIBE
        is enough, to allow DESCRIBE_CONFIGS also ALTER_CONFIGS (a denial implies nothing)
    3   one DENY that matches: denied · otherwise one ALLOW that matches: allowed
    4   nothing matches: denied; but if no pattern covers the name, allow.everyone.if.no.acl.found decides

One difference is intended: Kafka's scan overlooks a literal "*" for names that begin with "*" (and can loop for ever on names
that sort before it); here it covers every name, as documented. authorizer.py handles super users and caching.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, NamedTuple

from ottla.server.authorization.operations import (
    ALL,
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    ANY,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    LITERAL,
    MATCH,
    PREFIXED,
    READ,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    WRITE,
)

IMPLIES_DESCRIBE = frozenset({DESCRIBE, READ, WRITE, DELETE, ALTER, ALL})
IMPLIES_DESCRIBE_CONFIGS = frozenset({DESCRIBE_CONFIGS, ALTER_CONFIGS, ALL})


class AccessControlEntry(NamedTuple):
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class Decision(Enum):
    ALLOWED = "allowed by an entry"
    DENIED = "denied by an entry"
    #: Entries cover the resource, but none matches this action.
    NO_MATCH = "no entry allows it"
    #: No entry covers the resource.
    NO_ACL = "no entry for the resource"


class Verdict(NamedTuple):
    """A decision, and the entry that led to it."""

    decision: Decision
    entry: AccessControlEntry | None = None


NO_ACL = Verdict(Decision.NO_ACL)
NO_MATCH = Verdict(Decision.NO_MATCH)


class AclIndex:
    """All entries. A lookup costs one dictionary access per length of prefixes, not per entry."""

    def __init__(self) -> None:
        self._by_type: dict[int, _Names] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[AccessControlEntry]:
        for names in self._by_type.values():
            yield from names.all()

    def add(self, entry: AccessControlEntry) -> None:
        names = self._by_type.get(entry.resource_type)
        if names is None:
            names = self._by_type[entry.resource_type] = _Names()
        names.add(entry)
        self._count += 1

    def remove(self, entry: AccessControlEntry) -> None:
        self._by_type[entry.resource_type].remove(entry)
        self._count -= 1

    def decide(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> Verdict:
        names = self._by_type.get(resource_type)
        if names is None:
            return NO_ACL
        allowed: AccessControlEntry | None = None
        covered = False
        for entry in names.covering(name):
            covered = True
            if not matches_caller(entry, principal, host) or not matches_operation(entry, operation):
                continue
            if entry.permission_type != ALLOW:
                return Verdict(Decision.DENIED, entry)
            allowed = allowed or entry
        if allowed is not None:
            return Verdict(Decision.ALLOWED, allowed)
        return NO_MATCH if covered else NO_ACL

    def allows_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Return True if the operation is allowed on any resource of the type (KIP-679). As in Kafka, no operation implies another here."""
        names = self._by_type.get(resource_type)
        if names is None:
            return False
        mine = [
            entry
            for entry in names.all()
            if matches_caller(entry, principal, host) and entry.operation in (operation, ALL)
        ]
        denied = {(entry.pattern_type, entry.resource_name) for entry in mine if entry.permission_type == DENY}
        if (LITERAL, WILDCARD) in denied:
            return False
        return any(entry.permission_type == ALLOW and not _overruled(entry, denied) for entry in mine)


class _Names:
    """The entries of one resource type, by the names in their patterns."""

    __slots__ = ("lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, list[AccessControlEntry]] = {}
        self.prefixed: dict[str, list[AccessControlEntry]] = {}
        #: The lengths of the prefixes, ascending.
        self.lengths: tuple[int, ...] = ()

    def add(self, entry: AccessControlEntry) -> None:
        by_name = self._pattern(entry)
        by_name.setdefault(entry.resource_name, []).append(entry)
        if by_name is self.prefixed and len(entry.resource_name) not in self.lengths:
            self.lengths = tuple(sorted((*self.lengths, len(entry.resource_name))))

    def remove(self, entry: AccessControlEntry) -> None:
        by_name = self._pattern(entry)
        entries = by_name[entry.resource_name]
        entries.remove(entry)
        if not entries:
            del by_name[entry.resource_name]
            if by_name is self.prefixed:
                self.lengths = tuple(sorted({len(name) for name in by_name}))

    def _pattern(self, entry: AccessControlEntry) -> dict[str, list[AccessControlEntry]]:
        return self.prefixed if entry.pattern_type == PREFIXED else self.literal

    def all(self) -> Iterator[AccessControlEntry]:
        for entries in self.literal.values():
            yield from entries
        for entries in self.prefixed.values():
            yield from entries

    def covering(self, name: str) -> Iterator[AccessControlEntry]:
        yield from self.literal.get(name, ())
        if name != WILDCARD:
            yield from self.literal.get(WILDCARD, ())
        length = len(name)
        for prefix_length in self.lengths:
            if prefix_length > length:
                break
            yield from self.prefixed.get(name[:prefix_length], ())


def matches_caller(entry: AccessControlEntry, principal: str, host: str) -> bool:
    if entry.principal not in (principal, WILDCARD_PRINCIPAL):
        return False
    return entry.host in (host, WILDCARD) or (CIDR in entry.host and is_in_network(host, entry.host))


def matches_operation(entry: AccessControlEntry, operation: int) -> bool:
    if entry.operation in (operation, ALL):
        return True
    if entry.permission_type != ALLOW:
        return False
    if operation == DESCRIBE:
        return entry.operation in IMPLIES_DESCRIBE
    return operation == DESCRIBE_CONFIGS and entry.operation in IMPLIES_DESCRIBE_CONFIGS


def _overruled(entry: AccessControlEntry, denied: set[tuple[int, str]]) -> bool:
    """Return True if a DENY entry covers everything that this entry allows."""
    name = entry.resource_name
    if entry.pattern_type == LITERAL:
        if name == WILDCARD:
            return False
        if (LITERAL, name) in denied:
            return True
    return any((PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))


def matches_filter(wanted: Any, entry: AccessControlEntry) -> bool:
    """Match an entry with the filter `wanted` of DescribeAcls or DeleteAcls. Null and ANY match everything; MATCH matches
    every entry that applies to a resource of that name."""
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


# Hosts of entries: an address, a network as address/bits (KIP-1276), or * for all.

CIDR = "/"
#: The limit of cached networks. Parsing one takes some 10 us.
NETWORKS_MAX = 4_096


def is_in_network(host: str, network: str) -> bool:
    """Return True if the address is in the network; False if one of the two is malformed."""
    parsed = read_network(network)
    if parsed is None:
        return False
    try:
        return ip_address(host) in parsed
    except ValueError:
        return False


@lru_cache(NETWORKS_MAX)
def read_network(text: str) -> IPv4Network | IPv6Network | None:
    """Parse a network; return None if the text is no network. Bits after the prefix are ignored, as in Kafka."""
    address, _, bits = text.partition(CIDR)
    if not bits.isascii() or not bits.isdecimal():
        return None  # Python would accept a netmask, too
    try:
        return ip_network(f"{address}/{bits}", strict=False)
    except ValueError:
        return None


def java_host(host: str) -> str:
    """Format an address as in Java and in entries: IPv6 in full, without leading zeros or "::"."""
    if ":" not in host:
        return host
    address = IPv6Address(host.partition("%")[0])
    mapped = address.ipv4_mapped
    if mapped is not None:
        return str(mapped)
    return ":".join(f"{int(part, 16):x}" for part in address.exploded.split(":"))
