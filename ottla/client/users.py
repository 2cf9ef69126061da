"""Reading and changing the SCRAM credentials of users (KIP-554)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.client.cluster import ClusterClient
from ottla.client.cluster_error import check
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from ottla.server.sasl.scram import HASHES, ITERATIONS_MIN, NUMBERS, salted_password

SALT_BYTES = 32
MECHANISMS = {number: name for name, number in NUMBERS.items()}


class NewPassword(NamedTuple):
    """The iterations and the password of a credential that is set."""

    password: str
    iterations: int = ITERATIONS_MIN


async def describe_scram_users(cluster: ClusterClient, names: Sequence[str] | None = None) -> dict[str, dict[str, int]]:
    """Return per user the iterations per mechanism; of all users for None. Users without credentials are left out."""
    cluster.doing = "reading the SCRAM credentials"
    # An empty list means all users, as null does. Apache Kafka 4.3.1 never answers null from a user who may not ask.
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
