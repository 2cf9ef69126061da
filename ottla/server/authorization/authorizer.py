"""The authorizer of a node, which authorizes the requests of handlers.

    AllowAll             no authorizer.class.name: everything is allowed. Handlers are then not wrapped at all
    StandardAuthorizer   entries of the metadata log (acl.py), super.users, allow.everyone.if.no.acl.found

Decisions are cached until the entries change, so that a produce request costs one dictionary lookup per topic. The metadata
publisher passes the entries to `change`; before its first call only super users are allowed (Kafka's
AuthorizerNotReadyException), because a DENY entry might not have been read yet.

A decision is logged when it is first made, and not again until the entries change: a client that retries must not fill the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ottla.server.authorization.acl import AccessControlEntry, AclIndex, Decision, Verdict, java_host, matches_filter
from ottla.server.authorization.operations import (
    LITERAL,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    RESOURCE_TYPES,
    SUPPORTED_OPERATIONS,
    bit_field,
)
from ottla.server.client_bounds import Kept, shown
from ottla.server.config.broker import ALLOW_EVERYONE, SUPER_USERS
from ottla.server.config.key import ConfigError
from ottla.server.network.context import RequestContext
from ottla.server.principal import Principal

log = logging.getLogger(__name__)
#: Kafka's name, so that configurations of its audit log apply.
audit_log = logging.getLogger("kafka.authorizer.logger")

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

#: The memory for cached decisions is enough for 100,000 names of the usual length. When it is full, all decisions are dropped.
DECISIONS_BYTES_MAX = 32 * 1024 * 1024
#: Kafka checks this name to find out whether an operation is allowed on every resource of a type.
ANY_NAME = "hardcode"

_Key = tuple[Principal, str, int, int, str | None]


EVERY_OPERATION: Mapping[int, int] = {kind: bit_field(operations) for kind, operations in SUPPORTED_OPERATIONS.items()}


class AllowAll:
    """The authorizer without authorizer.class.name: everything is allowed, as in Kafka."""

    enabled = False

    def __init__(self) -> None:
        self.loaded = asyncio.Event()
        self.loaded.set()

    def allows(self, context: RequestContext, operation: int, resource_type: int, name: str) -> bool:
        return True

    def allows_any(self, context: RequestContext, operation: int, resource_type: int) -> bool:
        return True

    def authorized_operations(self, context: RequestContext, resource_type: int, name: str) -> int:
        return EVERY_OPERATION[resource_type]

    def entries(self) -> Collection[AccessControlEntry]:
        return ()

    def is_super_user(self, principal: Principal) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Judgement:
    """The decision about an action. `verdict` is that of the entries; a super user is not compared with them."""

    allowed: bool
    verdict: Verdict | None

    @property
    def rule(self) -> str:
        """The rule that decided, in Kafka's words."""
        if self.verdict is None:
            return "SuperUser"
        if self.verdict.entry is not None:
            return f"MatchingAcl(acl={java_acl(self.verdict.entry)})"
        return "DefaultAllow" if self.allowed else "DefaultDeny"


@dataclass(frozen=True, slots=True)
class FileRules:
    """The rules that a node's file adds to the entries: super.users, and allow.everyone.if.no.acl.found."""

    super_users: frozenset[str] = frozenset()
    allow_if_no_acl: bool = False

    def judge(
        self, index: AclIndex, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> Judgement:
        if principal in self.super_users:
            return Judgement(True, None)
        verdict = index.decide(principal, java_host(host), operation, resource_type, name)
        by_default = verdict.decision is Decision.NO_ACL and self.allow_if_no_acl
        return Judgement(by_default or verdict.decision is Decision.ALLOWED, verdict)


class StandardAuthorizer:
    """Authorizes by the entries of the metadata log, with super users and a cache of decisions."""

    enabled = True

    def __init__(self, super_users: Iterable[str] = (), *, allow_if_no_acl: bool = False) -> None:
        self._rules = FileRules(frozenset(super_users), allow_if_no_acl)
        self._index = AclIndex()
        self.decisions: Kept[_Key, bool] = Kept("decisions", DECISIONS_BYTES_MAX)
        #: Set once all entries have been read. Listeners outside of early.start.listeners open then.
        self.loaded = asyncio.Event()

    # -- Entries -----------------------------------------------------------------------------------------------------

    def change(self, removed: Iterable[AccessControlEntry], added: Iterable[AccessControlEntry]) -> None:
        """Change the entries. The first call, empty or not, marks them as loaded."""
        for entry in removed:
            self._index.remove(entry)
        for entry in added:
            self._index.add(entry)
        self.decisions.clear()
        if not self.loaded.is_set():
            self.loaded.set()
            log.info("Completed initial ACL load process: %d entries", len(self._index))

    def entries(self) -> Collection[AccessControlEntry]:
        return list(self._index)

    def is_super_user(self, principal: Principal) -> bool:
        return str(principal) in self._rules.super_users

    # -- Decisions ---------------------------------------------------------------------------------------------------

    def allows(
        self, context: RequestContext, operation: int, resource_type: int, name: str, *, audited: bool = True
    ) -> bool:
        peer = context.connection
        key = (peer.principal, peer.peer_host, operation, resource_type, name)
        known = self.decisions.get(key)
        if known is not None:
            return known
        judgement = self._judge(peer.principal, peer.peer_host, operation, resource_type, name)
        if audited:
            self._audit(context, operation, resource_type, name, judgement)
        return self.decisions.keep(key, judgement.allowed, name)

    def _judge(self, principal: Principal, host: str, operation: int, resource_type: int, name: str) -> Judgement:
        if not self.loaded.is_set() and not self.is_super_user(principal):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The access control entries have not been loaded yet.")
        return self._rules.judge(self._index, str(principal), host, operation, resource_type, name)

    def allows_any(self, context: RequestContext, operation: int, resource_type: int) -> bool:
        """Return True if the operation is allowed on any resource of the type."""
        peer = context.connection
        key = (peer.principal, peer.peer_host, operation, resource_type, None)
        known = self.decisions.get(key)
        if known is not None:
            return known
        decision = self.allows(context, operation, resource_type, ANY_NAME, audited=False) or self._index.allows_any(
            str(peer.principal), java_host(peer.peer_host), operation, resource_type
        )
        return self.decisions.keep(key, decision, "")

    def authorized_operations(self, context: RequestContext, resource_type: int, name: str) -> int:
        """Return the bit field of KIP-430. These decisions are not written to the audit log."""
        return bit_field(
            [
                operation
                for operation in SUPPORTED_OPERATIONS[resource_type]
                if self.allows(context, operation, resource_type, name, audited=False)
            ]
        )

    def _audit(
        self, context: RequestContext, operation: int, resource_type: int, name: str, judgement: Judgement
    ) -> None:
        """Log a decision at Kafka's levels: INFO if it was denied, DEBUG if it was allowed."""
        audit_log.log(
            logging.DEBUG if judgement.allowed else logging.INFO,
            "Principal = %s is %s operation = %s from host = %s on resource = %s:%s:%s for request = %s "
            "with resourceRefCount = 1 based on rule %s",
            context.connection.principal,
            "Allowed" if judgement.allowed else "Denied",
            OPERATIONS[operation],
            java_host(context.connection.peer_host),
            RESOURCE_TYPES[resource_type].title().replace("_", ""),
            PATTERN_TYPES[LITERAL],
            shown(name),
            APIS[ApiKey(context.api_key)].name,
            judgement.rule,
        )


#: Resource types and operations are the numbers in operations.py.
Authorizer: TypeAlias = AllowAll | StandardAuthorizer


def java_acl(entry: AccessControlEntry) -> str:
    """Return an entry as Kafka's StandardAcl prints it."""
    return (
        f"StandardAcl(resourceType={RESOURCE_TYPES[entry.resource_type]}, resourceName={entry.resource_name}, "
        f"patternType={PATTERN_TYPES[entry.pattern_type]}, principal={entry.principal}, host={entry.host}, "
        f"operation={OPERATIONS[entry.operation]}, permissionType={PERMISSIONS[entry.permission_type]})"
    )


# -- From a node's configuration -------------------------------------------------------------------------------------


def make_authorizer(class_name: str, static: Mapping[str, str]) -> Authorizer:
    """Make the authorizer. `static`: the node's properties by name."""
    if not class_name:
        return AllowAll()
    if class_name != STANDARD_AUTHORIZER:
        raise ConfigError(
            "authorizer.class.name", class_name, "this authorizer is unknown", f"use {STANDARD_AUTHORIZER}"
        )
    rules = file_rules(static)
    log.info(
        "set super.users=%s, default result=%s",
        static.get(SUPER_USERS, ""),
        "ALLOWED" if rules.allow_if_no_acl else "DENIED",
    )
    return StandardAuthorizer(rules.super_users, allow_if_no_acl=rules.allow_if_no_acl)


def file_rules(static: Mapping[str, str]) -> FileRules:
    """Read the rules of a node's properties."""
    allow_if_no_acl = static.get(ALLOW_EVERYONE, "").strip().lower() == "true"
    return FileRules(frozenset(read_super_users(static.get(SUPER_USERS, ""))), allow_if_no_acl)


def read_super_users(text: str) -> list[str]:
    """Parse "User:alice;User:bob". The separator is a semicolon, because distinguished names contain commas."""
    users = [user.strip() for user in text.split(";") if user.strip()]
    for user in users:
        kind, colon, _ = user.partition(":")
        if not colon or not kind:
            raise ConfigError(SUPER_USERS, text, f"expected a string in format principalType:principalName but got {user}",
                              "super.users=User:alice;User:bob")  # fmt: skip
    return users


def describe_acls(authorizer: Authorizer, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Return the entries that match the filter of DescribeAcls (29), grouped by their resource.

    v1 pattern types (KIP-290) · v2 flexible · v3 the user resource type (KIP-373).

    Raises:
        KafkaError: SECURITY_DISABLED, or INVALID_REQUEST for a filter that Kafka does not know.
    """
    if not authorizer.enabled:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    _check(request)
    by_pattern: dict[tuple[int, str, int], list[AccessControlEntry]] = {}
    for entry in authorizer.entries():
        if matches_filter(request, entry):
            pattern = (entry.resource_type, entry.resource_name, entry.pattern_type)
            by_pattern.setdefault(pattern, []).append(entry)
    return DescribeAclsResponse(
        error_message="",
        resources=[
            DescribeAclsResource(*pattern, [AclDescription(*entry[3:]) for entry in sorted(entries)])
            for pattern, entries in sorted(by_pattern.items())
        ],
    )


def _check(request: DescribeAclsRequest) -> None:
    for value, known in (
        (request.resource_type_filter, RESOURCE_TYPES),
        (request.pattern_type_filter, PATTERN_TYPES),
        (request.operation, OPERATIONS),
        (request.permission_type, PERMISSIONS),
    ):
        if known.get(value, "UNKNOWN") == "UNKNOWN":
            raise KafkaError(ErrorCode.INVALID_REQUEST, "DescribeAclsRequest contains UNKNOWN elements")
