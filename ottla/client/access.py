"""Who may log in, what they may do and how much they may take: access control entries, SCRAM users, delegation tokens, quotas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClusterError, check
from ottla.client.failures import Kind, did_you_mean
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryDataRequest,
    OpData,
)
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from ottla.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntryData,
)
from ottla.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ottla.protocol.messages.shared_structs import EntityData, TokenPrincipal
from ottla.server.authorization.acl import AccessControlEntry
from ottla.server.authorization.operations import (
    ALLOW,
    ANY,
    CLUSTER,
    CLUSTER_NAME,
    DENY,
    LITERAL,
    MATCH,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    PREFIXED,
    RESOURCE_TYPES,
    WILDCARD,
)
from ottla.server.sasl.scram import HASHES, ITERATIONS_MIN, NUMBERS, salted_password


class AclFilter(NamedTuple):
    """A filter of entries, with its fields in Kafka's order.

    A field that is set must match; one that is not set matches everything.
    """

    resource_type: int = ANY
    resource_name: str | None = None
    pattern_type: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission_type: int = ANY


def applying_to(resource_type: int, name: str) -> AclFilter:
    """Return the filter for all entries that apply to a resource."""
    return AclFilter(resource_type, name, MATCH)


async def describe_acls(cluster: ClusterClient, wanted: AclFilter) -> list[AccessControlEntry]:
    cluster.doing = "reading the access control entries"
    response: DescribeAclsResponse = await cluster.request(DescribeAclsRequest(*wanted))
    check("access control entries", response.error_code, response.error_message)
    return sorted(
        AccessControlEntry(*pattern, acl.principal, acl.host, acl.operation, acl.permission_type)
        for found in response.resources
        for pattern in [(found.resource_type, found.resource_name, found.pattern_type)]
        for acl in found.acls
    )


class StarInName(ClusterError):
    """The name in an entry has a `*` beside other letters.

    `beginning` is the resource with the letters before the `*`; None: there are none.
    """

    def __init__(self, kind: str, name: str) -> None:
        self.beginning = f"{kind}:{name.partition(WILDCARD)[0]}" if name.strip(WILDCARD) else None
        super().__init__(
            f"the name {name!r} has a `*`, which stands for no other letters in an entry",
            f"all names: {kind}:{WILDCARD} alone" if self.beginning is None else self.prefixed("as a prefixed entry"),
            Kind.WRONG,
        )

    def prefixed(self, how: str) -> str:
        """Return the remedy: a prefixed entry for the beginning of the name. `how` says how to write it."""
        return f"names that begin so: {self.beginning} {how}"


def new_entry(
    user: str, operation: str, resource: str, *, prefixed: bool = False, host: str = WILDCARD, deny: bool = False
) -> AccessControlEntry:
    """Return the entry that the words of `ottla acl add` mean.

    Raises:
        ClusterError: a word names no operation or no resource.
        StarInName: Kafka compares names letter by letter: `topic:payments*` would allow nothing, and deny nothing.
    """
    kind, name = read_resource(resource)
    if WILDCARD in name and (prefixed or name != WILDCARD):
        raise StarInName(kind_text(kind), name)
    return AccessControlEntry(
        kind,
        name,
        PREFIXED if prefixed else LITERAL,
        read_principal(user),
        host,
        read_operation(operation),
        DENY if deny else ALLOW,
    )


async def create_acl(cluster: ClusterClient, entry: AccessControlEntry) -> None:
    cluster.doing = "adding an access control entry"
    response: CreateAclsResponse = await cluster.request(CreateAclsRequest(creations=[AclCreation(*entry)]))
    check("access control entry", response.results[0].error_code, response.results[0].error_message)


async def delete_acls(cluster: ClusterClient, wanted: AclFilter) -> int:
    """Delete the matching entries; return their number."""
    cluster.doing = "removing access control entries"
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(*wanted)])
    response: DeleteAclsResponse = await cluster.request(request)
    (result,) = response.filter_results
    check("access control entries", result.error_code, result.error_message)
    return len(result.matching_acls)


# -- Names on the command line ---------------------------------------------------------------------------------------


def read_principal(text: str) -> str:
    return text if ":" in text else f"User:{text}"


def read_operation(text: str) -> int:
    name = text.upper().replace("-", "_")
    code = next((code for code, known in OPERATIONS.items() if known == name and code > ANY), None)
    if code is None:
        names = [known.lower().replace("_", "-") for code, known in OPERATIONS.items() if code > ANY]
        raise ClusterError(f"there is no operation {text!r}", did_you_mean(text, names) or ", ".join(names), Kind.WRONG)
    return code


def read_resource(text: str) -> tuple[int, str]:
    kind, colon, name = text.partition(":")
    if kind == "cluster" and not colon:
        return CLUSTER, CLUSTER_NAME
    code = next((code for code in RESOURCE_TYPES if code > ANY and kind_text(code) == kind), None)
    if code is None or not name:
        kinds = ", ".join(f"{kind_text(code)}:NAME" for code in RESOURCE_TYPES if code > ANY and code != CLUSTER)
        raise ClusterError(f"{text!r} is no resource", f"cluster, or one of {kinds}", Kind.WRONG)
    return code, name


def kind_text(code: int) -> str:
    return RESOURCE_TYPES[code].lower().replace("_", "-")


#: An address that no client has: only entries for all hosts apply to it.
NO_HOST = "0.0.0.0"


def text_of(entry: AccessControlEntry) -> str:
    row = row_of(entry)
    starting = "names that begin with " if entry.pattern_type == PREFIXED else ""
    return f"{row['permission']} {row['user']} {row['operation']} on {starting}{row['resource']} from {row['host']}"


def row_of(entry: AccessControlEntry) -> dict[str, object]:
    return {
        "permission": PERMISSIONS[entry.permission_type].lower(),
        "user": entry.principal,
        "operation": OPERATIONS[entry.operation].lower(),
        "resource": _resource_text(entry.resource_type, entry.resource_name),
        "pattern": PATTERN_TYPES[entry.pattern_type].lower(),
        "host": entry.host,
    }


def _resource_text(kind: int, name: str) -> str:
    return "cluster" if kind == CLUSTER else f"{kind_text(kind)}:{name}"


SALT_BYTES = 32
MECHANISMS = {number: name for name, number in NUMBERS.items()}


class NewPassword(NamedTuple):
    """The iterations and the password of a credential that is set."""

    password: str
    iterations: int = ITERATIONS_MIN


async def describe_scram_users(cluster: ClusterClient, names: Sequence[str] | None = None) -> dict[str, dict[str, int]]:
    """Return the iterations by user and mechanism. `names` None means all users. Users without credentials are left out."""
    cluster.doing = "reading the SCRAM credentials"
    # An empty list means all users, as null does. Apache Kafka 4.3.1 never responds to null if the user may not ask.
    users = [UserName(name=name) for name in names or ()]
    response = await cluster.request(DescribeUserScramCredentialsRequest(users=users))
    check("SCRAM credentials", response.error_code, response.error_message)
    found: dict[str, dict[str, int]] = {}
    for row in response.results:
        if row.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        check(f"user {row.user}", row.error_code, row.error_message)
        found[row.user] = {MECHANISMS[info.mechanism]: info.iterations for info in row.credential_infos}
    return found


async def alter_scram_user(
    cluster: ClusterClient, user: str, new: Mapping[str, NewPassword], removed: Iterable[str] = ()
) -> None:
    """Set the credentials of some mechanisms and remove those of others. The password itself is not sent, only its salted hash."""
    upsertions = []
    for mechanism, (password, iterations) in new.items():
        salt = cluster.world.rng.randbytes(SALT_BYTES)
        upsertions.append(
            ScramCredentialUpsertion(
                name=user,
                mechanism=NUMBERS[mechanism],
                iterations=iterations,
                salt=salt,
                salted_password=salted_password(HASHES[mechanism], password.encode(), salt, iterations),
            )
        )
    deletions = [ScramCredentialDeletion(name=user, mechanism=NUMBERS[mechanism]) for mechanism in removed]
    cluster.doing = f"changing the SCRAM credentials of user {user}"
    response = await cluster.request(AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions))
    for row in response.results:
        check(f"user {user}", row.error_code, row.error_message)


#: This period stands for the broker's delegation.token.max.lifetime.ms or delegation.token.expiry.time.ms.
BROKER_DEFAULT_MS = -1
#: With this period ExpireDelegationToken removes the token at once.
NOW_MS = -1


def principal(text: str) -> TokenPrincipal:
    """Return the principal of "User:alice", or "alice"."""
    kind, colon, name = text.partition(":")
    return TokenPrincipal(kind, name) if colon else TokenPrincipal("User", text)


async def create_token(
    cluster: ClusterClient, owner: str | None, renewers: Iterable[str], lifetime_ms: int = BROKER_DEFAULT_MS
) -> CreateDelegationTokenResponse:
    """Create a token for the user of the connection, or for another `owner`."""
    of = TokenPrincipal("", "") if owner is None else principal(owner)
    request = CreateDelegationTokenRequest(
        owner_principal_type=of.principal_type or None,
        owner_principal_name=of.principal_name or None,
        renewers=[principal(each) for each in renewers],
        max_lifetime_ms=lifetime_ms,
    )
    cluster.doing = "creating a delegation token"
    response: CreateDelegationTokenResponse = await cluster.request(request)
    check("delegation token", response.error_code)
    return response


async def renew_token(cluster: ClusterClient, hmac: bytes, period_ms: int = BROKER_DEFAULT_MS) -> int:
    """Move the expiry of a token. Return its new time, in milliseconds since the epoch."""
    cluster.doing = "renewing a delegation token"
    response: RenewDelegationTokenResponse = await cluster.request(RenewDelegationTokenRequest(hmac, period_ms))
    check("delegation token", response.error_code)
    return response.expiry_timestamp_ms


async def expire_token(cluster: ClusterClient, hmac: bytes, period_ms: int = NOW_MS) -> int:
    """End a token, at once or after a period. Return the time of its end, in milliseconds since the epoch."""
    cluster.doing = "expiring a delegation token"
    response: ExpireDelegationTokenResponse = await cluster.request(ExpireDelegationTokenRequest(hmac, period_ms))
    check("delegation token", response.error_code)
    return response.expiry_timestamp_ms


async def describe_tokens(
    cluster: ClusterClient, owners: Iterable[str] | None = None
) -> list[DescribedDelegationToken]:
    """Return the tokens of these owners that the user may see. None means all owners."""
    wanted = None if owners is None else [principal(each) for each in owners]
    cluster.doing = "listing the delegation tokens"
    response: DescribeDelegationTokenResponse = await cluster.request(DescribeDelegationTokenRequest(wanted))
    check("delegation tokens", response.error_code)
    return response.tokens


_EXACT, _DEFAULT = 0, 1

#: Entity type -> name. The name None is the type's default entity.
Entity = Mapping[str, str | None]


async def describe_quotas(cluster: ClusterClient, entity: Entity) -> list[EntryData]:
    """Return the quotas of all entities that have each of these parts."""
    components = [
        ComponentData(entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name)
        for kind, name in entity.items()
    ]
    cluster.doing = "reading the quotas"
    response: DescribeClientQuotasResponse = await cluster.request(DescribeClientQuotasRequest(components=components))
    check("quotas", response.error_code, response.error_message)
    return response.entries or []


async def alter_quotas(
    cluster: ClusterClient, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool = False
) -> None:
    """Set each quota to its value, or remove it where that is None."""
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()]
    parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    request = AlterClientQuotasRequest(entries=[EntryDataRequest(entity=parts, ops=ops)], validate_only=validate_only)
    cluster.doing = "changing the quotas"
    response: AlterClientQuotasResponse = await cluster.request(request)
    check("quotas", response.entries[0].error_code, response.entries[0].error_message)
