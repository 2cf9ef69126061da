"""The epochs with which a member may commit, and the error codes of all others, by API and kind of member."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.groups.group import Commit, TopicPartition, check_epoch
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

#: The member is in epoch 5, and has had this partition since epoch 3. It does not have any other.
CURRENT, SINCE, HELD, ANOTHERS = 5, 3, 0, 1
OFFSET_COMMIT, TXN_OFFSET_COMMIT = 9, None


def check(version: int | None, is_classic: bool, epoch: int, partition: int) -> None:
    partitions = [OffsetCommitRequestPartition(partition, 1)]
    request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic("t", bytes(16), partitions)])
    commit = Commit("m", None, epoch, version, request)

    def held_since(asked: TopicPartition) -> int | None:
        return SINCE if asked.partition == HELD else None

    check_epoch(commit, CURRENT, is_classic, held_since)


MEMBERS = pytest.mark.parametrize(
    ("version", "is_classic", "code"),
    [
        (OFFSET_COMMIT, False, ErrorCode.STALE_MEMBER_EPOCH),
        (OFFSET_COMMIT, True, ErrorCode.ILLEGAL_GENERATION),
        (TXN_OFFSET_COMMIT, False, ErrorCode.ILLEGAL_GENERATION),
        (TXN_OFFSET_COMMIT, True, ErrorCode.ILLEGAL_GENERATION),
    ],
)


@MEMBERS
def test_an_older_epoch_is_good_for_what_the_member_has_held_since_then(
    version: int | None, is_classic: bool, code: ErrorCode
) -> None:
    check(version, is_classic, CURRENT - 1, HELD)
    check(version, is_classic, SINCE, HELD)


@MEMBERS
@pytest.mark.parametrize(
    ("epoch", "partition"), [(SINCE - 1, HELD), (CURRENT - 1, ANOTHERS), (CURRENT + 1, HELD), (CURRENT + 1, ANOTHERS)]
)
def test_another_epoch_has_the_code_of_the_api_and_the_kind_of_member(
    version: int | None, is_classic: bool, code: ErrorCode, epoch: int, partition: int
) -> None:
    with pytest.raises(KafkaError) as caught:
        check(version, is_classic, epoch, partition)
    assert caught.value.code is code


def test_a_partition_of_anothers_is_no_matter_in_the_members_own_epoch() -> None:
    """The assignor alone decides which member has the partition. The epoch shows that the member knows its assignment."""
    check(OFFSET_COMMIT, False, CURRENT, ANOTHERS)


@pytest.mark.parametrize("is_classic", [False, True])
def test_a_version_without_member_epochs_is_for_classic_members_alone(is_classic: bool) -> None:
    def ask() -> Any:
        check(OFFSET_COMMIT - 1, is_classic, CURRENT, HELD)

    if is_classic:
        ask()
        return
    with pytest.raises(KafkaError) as caught:
        ask()
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
