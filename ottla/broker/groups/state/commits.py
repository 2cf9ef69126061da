"""The rules by which a member of a consumer or streams group may commit offsets, for OffsetCommit and TxnOffsetCommit alike.

A member commits with its member epoch, or with its generation while it speaks the classic protocol. An older one is accepted for
partitions that the member has held since then (KIP-1251): a consumer's epoch rises in the background while the application still works
on the records that it polled before. The error code of every other epoch depends on the API and on the kind of the member:

    API                member of KIP-848 or KIP-1071    classic member
    OffsetCommit       STALE_MEMBER_EPOCH               ILLEGAL_GENERATION
    TxnOffsetCommit    ILLEGAL_GENERATION               ILLEGAL_GENERATION

Java's producer aborts the transaction after ILLEGAL_GENERATION; STALE_MEMBER_EPOCH is fatal for it, and it can then neither commit nor abort.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

#: Members of Kafka 4 commit with their epoch from this version of OffsetCommit on.
MEMBER_EPOCH_SINCE = 9


class TopicPartition(NamedTuple):
    topic: str
    topic_id: bytes
    partition: int


class Commit(NamedTuple):
    """Who commits offsets of which partitions; `version` is that of OffsetCommit, and None for TxnOffsetCommit."""

    member_id: str
    group_instance_id: str | None
    epoch: int
    version: int | None
    request: OffsetCommitRequest | TxnOffsetCommitRequest

    @property
    def is_transactional(self) -> bool:
        return self.version is None

    @property
    def names_no_member(self) -> bool:
        """Whether this is a TxnOffsetCommit without a member: producers that know only the group send it, as do versions 0 to 2."""
        return self.is_transactional and self.epoch == -1 and not self.member_id and self.group_instance_id is None

    def partitions(self) -> Iterator[TopicPartition]:
        for topic in self.request.topics:
            for partition in topic.partitions:
                yield TopicPartition(topic.name, topic.topic_id, partition.partition_index)


def commit_of(request: OffsetCommitRequest | TxnOffsetCommitRequest, version: int | None) -> Commit:
    epoch = request.generation_id_or_member_epoch
    return Commit(request.member_id, request.group_instance_id, epoch, version, request)


def check_epoch(
    commit: Commit, current_epoch: int, is_classic: bool, held_since: Callable[[TopicPartition], int | None]
) -> None:
    """Accepts a commit of a known member, whose epoch is `current_epoch`; `held_since` returns the epoch since which the member has a partition.

    Raises KafkaError with the code of the table above, or UNSUPPORTED_VERSION for an OffsetCommit that has no member epoch.
    """
    if commit.version is not None and commit.version < MEMBER_EPOCH_SINCE and not is_classic:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the modern group protocol",
        )
    if commit.epoch == current_epoch:
        return
    if commit.epoch > current_epoch:
        raise _other_epoch(
            commit, is_classic, f"Received epoch {commit.epoch} is newer than current member epoch {current_epoch}."
        )
    for partition in commit.partitions():
        since = held_since(partition)
        if since is None or commit.epoch < since:
            raise _other_epoch(
                commit,
                is_classic,
                f"Received epoch {commit.epoch} is older than the assignment of {partition.topic}-{partition.partition} to the member.",
            )


def _other_epoch(commit: Commit, is_classic: bool, message: str) -> KafkaError:
    illegal = is_classic or commit.is_transactional
    return KafkaError(ErrorCode.ILLEGAL_GENERATION if illegal else ErrorCode.STALE_MEMBER_EPOCH, message)
