"""SCRAM credentials by (mechanism, user). Their keys are secrets and must never be printed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import field

from ottla.controller.metadata.shared_map import Map, MapDelta
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.metadata_records import (
    MetadataRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from ottla.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ottla.protocol.slotted import frozen
from ottla.server.sasl.scram import ScramCredential


@frozen
class ScramImage:
    credentials: Map[tuple[int, str], ScramCredential] = field(default_factory=Map)

    def credential(self, mechanism: int, user: str) -> ScramCredential | None:
        return self.credentials.get((mechanism, user))

    def first(self, mechanism: int) -> ScramCredential | None:
        """Return the credential of the user with the first name; None if the mechanism has none."""
        names = [user for each, user in self.credentials if each == mechanism]
        return self.credentials[mechanism, min(names)] if names else None

    def to_records(self) -> Iterator[MetadataRecord]:
        for (mechanism, user), credential in sorted(self.credentials.items(), key=lambda item: item[0]):
            yield UserScramCredentialRecord(
                name=user,
                mechanism=mechanism,
                salt=credential.salt,
                stored_key=credential.stored_key,
                server_key=credential.server_key,
                iterations=credential.iterations,
            )


class ScramDelta(MapDelta[ScramImage, tuple[int, str], ScramCredential]):
    """New credentials by (mechanism, user); None if the credential was removed."""

    map_name = "credentials"

    def replay_user_scram_credential(self, record: UserScramCredentialRecord) -> None:
        self.changes[record.mechanism, record.name] = ScramCredential(
            bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
        )

    def replay_remove_user_scram_credential(self, record: RemoveUserScramCredentialRecord) -> None:
        self.changes[record.mechanism, record.name] = None


def describe_scram_credentials(
    image: ScramImage, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """DescribeUserScramCredentials: which mechanisms users have credentials for, and their iterations; never the keys (KIP-554).

    No users asked for means all of them. A user asked for twice, or unknown, has an error of its own.
    """
    known: dict[str, list[CredentialInfo]] = {}
    for (mechanism, user), credential in sorted(image.credentials.items()):
        known.setdefault(user, []).append(CredentialInfo(mechanism, credential.iterations))
    asked = Counter(user.name for user in request.users or ()) or dict.fromkeys(known, 1)
    return DescribeUserScramCredentialsResponse(
        results=[_describe(user, times, known.get(user)) for user, times in asked.items()]
    )


def _describe(user: str, times: int, infos: list[CredentialInfo] | None) -> DescribeUserScramCredentialsResult:
    if times > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        return DescribeUserScramCredentialsResult(user, ErrorCode.DUPLICATE_RESOURCE, message)
    if infos is None:
        message = f"Attempt to describe a user credential that does not exist: {user}"
        return DescribeUserScramCredentialsResult(user, ErrorCode.RESOURCE_NOT_FOUND, message)
    return DescribeUserScramCredentialsResult(user, ErrorCode.NONE, None, infos)
