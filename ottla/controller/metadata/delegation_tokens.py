"""Delegation tokens by id; the secret part of a token is never in the log (it is an HMAC of the id)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from ottla.controller.metadata.shared_map import Map, MapDelta
from ottla.protocol.internal_topics.metadata_records import (
    DelegationTokenRecord,
    MetadataRecord,
    RemoveDelegationTokenRecord,
)
from ottla.protocol.slotted import frozen


@frozen
class DelegationToken:
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiration_timestamp_ms: int
    token_id: str

    @property
    def seen_by(self) -> tuple[str, ...]:
        """Return the principals that see the token without a permission.

        Its requester sees it, but may not renew or expire it (KIP-373).
        """
        return self.owner, self.requester, *self.renewers


def record_of(token: DelegationToken) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_timestamp_ms,
        max_timestamp=token.max_timestamp_ms,
        expiration_timestamp=token.expiration_timestamp_ms,
        token_id=token.token_id,
    )


@frozen
class DelegationTokensImage:
    tokens: Map[str, DelegationToken] = field(default_factory=Map)

    def to_records(self) -> Iterator[MetadataRecord]:
        for _, token in sorted(self.tokens.items(), key=lambda item: item[0]):
            yield record_of(token)


class DelegationTokensDelta(MapDelta[DelegationTokensImage, str, DelegationToken]):
    """New tokens by id; None if the token was removed."""

    map_name = "tokens"

    def replay_delegation_token(self, record: DelegationTokenRecord) -> None:
        self.changes[record.token_id] = DelegationToken(
            owner=record.owner,
            requester=record.requester,
            renewers=tuple(record.renewers),
            issue_timestamp_ms=record.issue_timestamp,
            max_timestamp_ms=record.max_timestamp,
            expiration_timestamp_ms=record.expiration_timestamp,
            token_id=record.token_id,
        )

    def replay_remove_delegation_token(self, record: RemoveDelegationTokenRecord) -> None:
        self.changes[record.token_id] = None
