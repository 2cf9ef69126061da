"""The authorizer of a node: what handlers ask before they do something for somebody.

    AllowAll             no authorizer.class.name: everybody may do everything. Handlers are then not wrapped at all
    StandardAuthorizer   entries of the metadata log (acl.py), super.users, allow.everyone.if.no.acl.found

Decisions are kept until the entries change, so that a produce request costs one dictionary lookup per topic. Whoever owns the
metadata hands the entries over with `change`; until the first time only super users may do anything (Kafka's
AuthorizerNotReadyException), because a denial might not have been read yet.

A denial is logged when it is decided and not again until the entries change: a client that keeps asking must not fill the log.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Iterable, Mapping
from ipaddress import IPv6Address
from typing import Protocol

from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.config.errors import ConfigError
from ottla.server.network.context import RequestContext
from ottla.server.security.acl import AccessControlEntry, AclIndex, Decision
from ottla.server.security.operations import (
    LITERAL,
    OPERATIONS,
    PATTERN_TYPES,
    RESOURCE_TYPES,
    SUPPORTED_OPERATIONS,
    bit_field,
)
from ottla.server.security.principal import Principal

log = logging.getLogger(__name__)
#: Kafka's name, so that its recipes for an audit log apply.
audit_log = logging.getLogger("kafka.authorizer.logger")

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SUPER_USERS = "super.users"
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"
#: The authorizer's own configurations: no part of the node's table, as in Kafka.
PROPERTIES = frozenset({SUPER_USERS, ALLOW_EVERYONE})

#: About 30 MB. A client chooses the names it asks for, so there has to be an end; all are forgotten at once.
DECISIONS_MAX = 100_000
#: Kafka tries this name to find out whether a caller may do something to every resource of a type.
ANY_NAME = "hardcode"

_Key = tuple[Principal, str, int, int, str | None]


class Authorizer(Protocol):
    """Resource types and operations are those of operations.py."""

    @property
    def enabled(self) -> bool: ...
    def allows(self, context: RequestContext, operation: int, resource_type: int, name: str) -> bool: ...
    def allows_any(self, context: RequestContext, operation: int, resource_type: int) -> bool:
        """Whether there is a resource of the type for which the operation is allowed."""

    def allowed(
        self, context: RequestContext, operation: int, resource_type: int, names: Iterable[str]
    ) -> Container[str]: ...
    def authorized_operations(self, context: RequestContext, resource_type: int, name: str) -> int:
        """The bit field of KIP-430."""

    def entries(self) -> Collection[AccessControlEntry]: ...


class _Everything:
    """The names that are allowed where all are."""

    def __contains__(self, name: object) -> bool:
        return True


EVERYTHING = _Everything()
EVERY_OPERATION: Mapping[int, int] = {kind: bit_field(operations) for kind, operations in SUPPORTED_OPERATIONS.items()}


class AllowAll:
    """No authorizer.class.name: everybody may do everything, as in Kafka."""

    enabled = False

    def allows(self, context: RequestContext, operation: int, resource_type: int, name: str) -> bool:
        return True

    def allows_any(self, context: RequestContext, operation: int, resource_type: int) -> bool:
        return True

    def allowed(
        self, context: RequestContext, operation: int, resource_type: int, names: Iterable[str]
    ) -> Container[str]:
        return EVERYTHING

    def authorized_operations(self, context: RequestContext, resource_type: int, name: str) -> int:
        return EVERY_OPERATION[resource_type]

    def entries(self) -> Collection[AccessControlEntry]:
        return ()

    def is_super_user(self, principal: Principal) -> bool:
        return True


class StandardAuthorizer:
    """See the module."""

    enabled = True

    def __init__(self, super_users: Iterable[str] = (), *, allow_if_no_acl: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allow_if_no_acl = allow_if_no_acl
        self._index = AclIndex()
        self._decisions: dict[_Key, bool] = {}
        self.ready = False

    # -- Entries -----------------------------------------------------------------------------------------------------

    def change(self, removed: Iterable[AccessControlEntry], added: Iterable[AccessControlEntry]) -> None:
        """The entries are now these. The first call, empty or not, says that they are known at all."""
        for entry in removed:
            self._index.remove(entry)
        for entry in added:
            self._index.add(entry)
        self._decisions.clear()
        if not self.ready:
            self.ready = True
            log.info("Completed initial ACL load process: %d entries", len(self._index))

    def entries(self) -> Collection[AccessControlEntry]:
        return list(self._index)

    def is_super_user(self, principal: Principal) -> bool:
        return str(principal) in self._super_users

    # -- Decisions ---------------------------------------------------------------------------------------------------

    def allows(self, context: RequestContext, operation: int, resource_type: int, name: str) -> bool:
        return self._allows(context, operation, resource_type, name)

    def _allows(
        self, context: RequestContext, operation: int, resource_type: int, name: str, *, audited: bool = True
    ) -> bool:
        peer = context.connection
        key = (peer.principal, peer.peer_host, operation, resource_type, name)
        known = self._decisions.get(key)
        if known is not None:
            return known
        decision, why = self._decide(peer.principal, peer.peer_host, operation, resource_type, name)
        if not decision and audited:
            self._audit(context, operation, resource_type, name, why)
        return self._keep(key, decision)

    def _decide(
        self, principal: Principal, host: str, operation: int, resource_type: int, name: str
    ) -> tuple[bool, str]:
        if self.is_super_user(principal):
            return True, "super user"
        if not self.ready:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The access control entries have not been loaded yet.")
        decision = self._index.decide(str(principal), java_host(host), operation, resource_type, name)
        if decision is Decision.NO_ACL:
            return self._allow_if_no_acl, decision.value
        return decision is Decision.ALLOWED, decision.value

    def _keep(self, key: _Key, decision: bool) -> bool:
        if len(self._decisions) >= DECISIONS_MAX:
            self._decisions.clear()
        self._decisions[key] = decision
        return decision

    def allowed(
        self, context: RequestContext, operation: int, resource_type: int, names: Iterable[str]
    ) -> Container[str]:
        return {name for name in names if self.allows(context, operation, resource_type, name)}

    def allows_any(self, context: RequestContext, operation: int, resource_type: int) -> bool:
        peer = context.connection
        key = (peer.principal, peer.peer_host, operation, resource_type, None)
        known = self._decisions.get(key)
        if known is not None:
            return known
        decision = self._allows(context, operation, resource_type, ANY_NAME, audited=False) or self._index.allows_any(
            str(peer.principal), java_host(peer.peer_host), operation, resource_type
        )
        return self._keep(key, decision)

    def authorized_operations(self, context: RequestContext, resource_type: int, name: str) -> int:
        """What is asked only to be told is not written to the audit log."""
        return bit_field(
            [
                operation
                for operation in SUPPORTED_OPERATIONS[resource_type]
                if self._allows(context, operation, resource_type, name, audited=False)
            ]
        )

    def _audit(self, context: RequestContext, operation: int, resource_type: int, name: str, why: str) -> None:
        audit_log.info(
            "Principal = %s is Denied operation = %s from host = %s on resource = %s:%s:%s for request = %s based on rule %s",
            context.connection.principal,
            OPERATIONS[operation],
            context.connection.peer_host,
            RESOURCE_TYPES[resource_type],
            PATTERN_TYPES[LITERAL],
            name,
            ApiKey(context.api_key).name,
            why,
        )


def java_host(host: str) -> str:
    """An address as Java prints it and entries have it: IPv6 in full, without leading zeros or "::"."""
    if ":" not in host:
        return host
    address = IPv6Address(host.partition("%")[0])
    mapped = address.ipv4_mapped
    if mapped is not None:
        return str(mapped)
    return ":".join(f"{int(part, 16):x}" for part in address.exploded.split(":"))


# -- From a node's configuration -------------------------------------------------------------------------------------


def make_authorizer(class_name: str, static: Mapping[str, str]) -> AllowAll | StandardAuthorizer:
    """`static`: what the node's properties say, by name."""
    if not class_name:
        return AllowAll()
    if class_name != STANDARD_AUTHORIZER:
        raise ConfigError(
            "authorizer.class.name", class_name, "there is no such authorizer here", f"use {STANDARD_AUTHORIZER}"
        )
    users = read_super_users(static.get(SUPER_USERS, ""))
    allow_if_no_acl = static.get(ALLOW_EVERYONE, "").strip().lower() == "true"
    log.info("set super.users=%s, default result=%s", ",".join(users), "ALLOWED" if allow_if_no_acl else "DENIED")
    return StandardAuthorizer(users, allow_if_no_acl=allow_if_no_acl)


def read_super_users(text: str) -> list[str]:
    """ "User:alice;User:bob": with semicolons, because distinguished names have commas."""
    users = [user.strip() for user in text.split(";") if user.strip()]
    for user in users:
        kind, colon, _ = user.partition(":")
        if not colon or not kind:
            raise ConfigError(SUPER_USERS, text, f"expected a string in format principalType:principalName but got {user}",
                              "super.users=User:alice;User:bob")  # fmt: skip
    return users
