"""Committed offsets of topics that are deleted, and in open transactions: cases that transcripts cannot express."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.groups.group import GroupRecordCodec, offset_commit_record
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.coordinator_records import encode_key, encode_value
from ottla.protocol.internal_topics.group_records import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.records.builder import build_batch
from tests.broker.groups.harness import TP, GroupCoordinatorHarness

OLD, NEW = b"\1" * 16, b"\2" * 16


def offset(client: Any, topic: str = "t", **options: Any) -> int:
    answer = client.fetch(partitions=[(topic, 0)], **options)
    return answer.topics[0].partitions[0].committed_offset


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    harness = GroupCoordinatorHarness()
    client = harness.client("s")
    client.commit(offsets={("t", 0): 5, ("u", 0): 6})
    harness.coordinator.on_topics_deleted(["t"])
    harness.clock.turn()
    assert (offset(client), offset(client, "u")) == (-1, 6)
    assert harness.records()[-1][2] is None


def test_a_topic_recreated_under_the_same_name_starts_without_offsets() -> None:
    harness = GroupCoordinatorHarness()
    client = harness.client("s")
    client.commit(offsets={("t", 0): 5}, topic_id=OLD)
    assert offset(client, topic_id=NEW) == -1
    assert offset(client, topic_id=OLD) == 5
    assert offset(client) == 5


def test_a_topic_deleted_while_there_was_no_coordinator_is_noticed_on_load() -> None:
    harness = GroupCoordinatorHarness()
    harness.topic_ids = {OLD, NEW}
    client = harness.client("s")
    client.commit(offsets={("t", 0): 5}, topic_id=OLD)
    client.commit(offsets={("u", 0): 6}, topic_id=NEW)
    client.commit(offsets={("v", 0): 7})
    harness.topic_ids = {NEW}
    harness.restart()
    assert [offset(client, topic) for topic in "tuv"] == [-1, 6, 7]


def replay(
    harness: GroupCoordinatorHarness, record_offset: int, producer_id: int, value: int | None, partition: int = 0
) -> None:
    body = None if value is None else OffsetCommitValue(offset=value)
    harness.shard.replay(record_offset, producer_id, OffsetCommitKey("g", "t", partition), body)


def test_offsets_of_an_open_transaction_are_not_seen_until_its_marker() -> None:
    harness = GroupCoordinatorHarness()
    client = harness.client("s")
    replay(harness, 0, -1, 1)
    replay(harness, 1, 77, 2)
    assert offset(client) == 1
    stable = client.fetch(partitions=[("t", 0)], stable=True).topics[0].partitions[0]
    assert (stable.error_code, stable.committed_offset) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    harness.shard.replay_end_transaction_marker(77, True)
    assert offset(client, stable=True) == 2
    assert not harness.shard.offsets._pending and not harness.shard.offsets._open


def test_an_aborted_transaction_leaves_the_older_offset() -> None:
    harness = GroupCoordinatorHarness()
    client = harness.client("s")
    replay(harness, 0, -1, 1)
    replay(harness, 1, 77, 2)
    harness.shard.replay_end_transaction_marker(77, False)
    assert offset(client, stable=True) == 1


def test_a_plain_commit_written_after_the_transactional_one_wins() -> None:
    harness = GroupCoordinatorHarness()
    client = harness.client("s")
    replay(harness, 1, 77, 2)
    replay(harness, 2, -1, 3)
    harness.shard.replay_end_transaction_marker(77, True)
    assert offset(client) == 3


def test_deleting_reaches_offsets_of_open_transactions() -> None:
    harness = GroupCoordinatorHarness()
    client = harness.client("s")
    replay(harness, 0, 77, 2)
    assert client.delete_offsets(partitions=[("t", 0)]).error_code == ErrorCode.NONE
    harness.shard.replay_end_transaction_marker(77, True)
    assert offset(client) == -1


def test_a_group_with_an_open_transaction_does_not_expire() -> None:
    harness = GroupCoordinatorHarness()
    replay(harness, 0, 77, 2)
    harness.clock.advance(8 * 24 * 3_600_000)
    assert "g" in harness.shard.groups
    harness.shard.replay_end_transaction_marker(77, False)
    harness.clock.advance(3_600_000)
    assert "g" not in harness.shard.groups


def test_an_offset_with_a_retention_of_its_own_goes_by_that_and_is_written_as_old_readers_need_it() -> None:
    harness = GroupCoordinatorHarness()
    client = harness.client("s")
    client.commit(offsets={("t", 0): 5}, retention=3_600_000)
    key, value = GroupRecordCodec().encode(*harness.records()[0][1:])
    assert (key[:2], (value or b"")[:2]) == (b"\0\1", b"\0\1")
    harness.clock.advance(3_000_000)
    assert offset(client) == 5
    harness.clock.advance(1_200_000)
    assert offset(client) == -1


def test_offsets_in_the_oldest_format_are_understood() -> None:
    key = encode_key(LegacyOffsetCommitKey("g", "t", 3))
    value = encode_value(LegacyOffsetCommitValue(offset=9, metadata="m", commit_timestamp=1), 0)
    decoded = GroupRecordCodec().decode(key, value)
    assert decoded == offset_commit_record("g", "t", 3, OffsetCommitValue(offset=9, metadata="m", commit_timestamp=1))


@pytest.mark.parametrize("retention", [-1, 1000])
def test_records_survive_their_own_bytes(retention: int) -> None:
    harness = GroupCoordinatorHarness()
    client = harness.client("s")
    client.commit(offsets={("tøpic", 7): 2**40}, metadata="\U0001f600", retention=retention)
    before = harness.shard.offsets.groups
    harness.restart()
    assert harness.shard.offsets.groups == before


def test_a_group_whose_record_cannot_be_read_is_refused_and_the_others_are_served() -> None:
    harness = GroupCoordinatorHarness(group_initial_rebalance_delay_ms=0)
    other = harness.client("b", group="other")
    for client in (harness.client("a"), other):
        client.commit(offsets={("t", 0): 3})
    key, _ = GroupRecordCodec().encode(*offset_commit_record("g", "u", 1, OffsetCommitValue()))
    harness.log.append(TP, build_batch([(key, b"\0\x63of a newer version", 0)]))
    harness.restart()
    client = harness.client("a")
    assert client.fetch(partitions=[("t", 0)]).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert client.commit(offsets={("t", 0): 4}).topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert client.join().error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert client.heartbeat().error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    described = harness.coordinator.describe(["g", "other"], error_since=True)
    assert [group.error_code for group in described] == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]
    assert other.fetch(partitions=[("t", 0)]).topics[0].partitions[0].committed_offset == 3
    # DeleteGroups is the remedy: it also writes tombstones for records that cannot be read.
    (result,) = harness.delete_groups(["g"])
    assert result.error_code == ErrorCode.NONE
    assert client.join().error_code == ErrorCode.MEMBER_ID_REQUIRED
    harness.restart()
    assert client.fetch(partitions=[("t", 0), ("u", 1)]).topics[0].partitions[0].committed_offset == -1
    assert not harness.shard.unreadable


def test_a_later_record_of_the_same_key_makes_a_group_readable_again() -> None:
    harness = GroupCoordinatorHarness()
    codec = GroupRecordCodec()
    key, value = codec.encode(*offset_commit_record("g", "t", 0, OffsetCommitValue(offset=5)))
    harness.log.append(TP, build_batch([(key, b"\0\x63of a newer version", 0), (key, value, 0)]))
    harness.restart()
    assert harness.client("a").fetch(partitions=[("t", 0)]).topics[0].partitions[0].committed_offset == 5


def test_a_group_with_more_offsets_than_a_batch_has_room_for_is_deleted() -> None:
    harness = GroupCoordinatorHarness()
    harness.log.bytes_max = 1_000
    client = harness.client("s")
    for partition in range(50):
        client.commit(offsets={("t", partition): 5})
    (result,) = harness.delete_groups(["g"])
    assert result.error_code == ErrorCode.NONE
    assert not harness.shard.offsets.groups and not harness.shard.groups
