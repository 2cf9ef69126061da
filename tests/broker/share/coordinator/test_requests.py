"""The share coordinator decides on each request, and the next coordinator knows it from the log."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.share.coordinator.share_shard import ShareRecordCodec
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.coordinator_records import ShareSnapshotValue, ShareUpdateValue
from tests.broker.share.coordinator.harness import ShareCoordinatorHarness

AVAILABLE, ACKNOWLEDGED = 0, 2


@pytest.fixture
def share() -> ShareCoordinatorHarness:
    return ShareCoordinatorHarness()


def batches(result: Any) -> list[tuple[int, int, int, int]]:
    return [(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in result.state_batches]


def kinds(share: ShareCoordinatorHarness) -> str:
    """Return one letter for each record: snapshot, update or tombstone."""
    letters = {ShareSnapshotValue: "S", ShareUpdateValue: "u", type(None): "-"}
    return "".join(letters[type(value)] for _, _, value in share.records())


def test_a_share_partition_is_initialized_before_it_is_read_or_written(share: ShareCoordinatorHarness) -> None:
    assert share.read().error_code == ErrorCode.INVALID_REQUEST
    assert share.write().error_code == ErrorCode.INVALID_REQUEST
    assert share.initialize().error_code == ErrorCode.NONE
    assert (share.read().state_epoch, share.read().start_offset) == (1, -1)


def test_a_late_initialization_of_the_same_epoch_takes_nothing_back(share: ShareCoordinatorHarness) -> None:
    """The persister of a deposed group coordinator retries, while members already acknowledge records. Kafka forgets these
    acknowledgements.
    """
    share.initialize()
    share.write((5, 9, ACKNOWLEDGED, 1), start_offset=5)
    assert share.initialize().error_code == ErrorCode.NONE
    assert batches(share.read()) == [(5, 9, ACKNOWLEDGED, 1)]
    assert share.read().start_offset == 5
    assert share.initialize(state_epoch=2).error_code == ErrorCode.NONE
    assert (batches(share.read()), share.read().start_offset) == ([], -1)


def test_the_summary_of_a_share_partition_without_state_is_no_error(share: ShareCoordinatorHarness) -> None:
    summary = share.summary()
    assert (summary.error_code, summary.start_offset, summary.delivery_complete_count) == (ErrorCode.NONE, -1, -1)


def test_updates_are_merged_and_survive_a_new_coordinator(share: ShareCoordinatorHarness) -> None:
    share.initialize()
    share.write((5, 9, ACKNOWLEDGED, 1), start_offset=5)
    share.write((7, 12, AVAILABLE, 2))
    expected = [(5, 6, ACKNOWLEDGED, 1), (7, 12, AVAILABLE, 2)]
    assert batches(share.read()) == expected
    share.restart()
    assert batches(share.read()) == expected
    assert share.summary().start_offset == 5


def test_a_leader_is_fenced_once_a_later_one_has_read_the_state(share: ShareCoordinatorHarness) -> None:
    share.initialize()
    assert share.read(leader_epoch=3).error_code == ErrorCode.NONE
    assert share.read(leader_epoch=2).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert share.write(leader_epoch=2).error_code == ErrorCode.FENCED_LEADER_EPOCH
    share.restart()
    assert share.write(leader_epoch=2).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert share.write(leader_epoch=3).error_code == ErrorCode.NONE


def test_a_write_raises_no_leader_epoch(share: ShareCoordinatorHarness) -> None:
    share.initialize()
    assert share.write(leader_epoch=9).error_code == ErrorCode.NONE
    assert share.summary().leader_epoch == 0
    assert share.write(leader_epoch=0).error_code == ErrorCode.NONE


def test_a_new_state_epoch_ends_the_state_and_fences_its_leader(share: ShareCoordinatorHarness) -> None:
    share.initialize(state_epoch=1)
    share.write((0, 9, ACKNOWLEDGED, 1), start_offset=0)
    assert share.initialize(state_epoch=2, start_offset=40).error_code == ErrorCode.NONE
    assert share.write(state_epoch=1).error_code == ErrorCode.FENCED_STATE_EPOCH
    assert share.initialize(state_epoch=1).error_code == ErrorCode.FENCED_STATE_EPOCH
    state = share.read()
    assert (state.state_epoch, state.start_offset, batches(state)) == (2, 40, [])


def test_a_deposed_leader_stays_fenced_when_the_state_is_replaced(share: ShareCoordinatorHarness) -> None:
    share.initialize()
    share.read(leader_epoch=3)
    share.initialize(state_epoch=2)
    share.restart()
    assert share.read(leader_epoch=2).error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_deleted_state_is_gone_and_deleting_it_again_is_no_error(share: ShareCoordinatorHarness) -> None:
    share.initialize()
    assert share.delete().error_code == ErrorCode.NONE
    assert share.delete().error_code == ErrorCode.NONE
    share.restart()
    assert share.read().error_code == ErrorCode.INVALID_REQUEST
    assert kinds(share) == "S-"


@pytest.mark.parametrize("request_name", ["initialize", "delete", "summary"])
def test_a_partition_that_the_topic_does_not_have_is_unknown(share: ShareCoordinatorHarness, request_name: str) -> None:
    assert getattr(share, request_name)(partition=3).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("request_name", ["initialize", "read", "write", "delete", "summary"])
def test_a_negative_partition_is_refused(share: ShareCoordinatorHarness, request_name: str) -> None:
    assert getattr(share, request_name)(partition=-1).error_code == ErrorCode.INVALID_REQUEST


def test_a_batch_that_ends_before_it_begins_is_refused_and_changes_nothing(share: ShareCoordinatorHarness) -> None:
    share.initialize()
    assert share.write((9, 3, AVAILABLE, 1)).error_code == ErrorCode.INVALID_REQUEST
    assert share.write((-2, 3, AVAILABLE, 1)).error_code == ErrorCode.INVALID_REQUEST
    assert share.initialize(state_epoch=-1).error_code == ErrorCode.INVALID_REQUEST
    assert kinds(share) == "S"


def test_every_so_many_updates_a_snapshot_is_written() -> None:
    share = ShareCoordinatorHarness(updates_per_snapshot=3)
    share.initialize()
    for offset in range(8):
        share.write((offset, offset, ACKNOWLEDGED, 1))
    assert kinds(share) == "SuuuSuuuS"
    snapshots = [value for _, _, value in share.records() if isinstance(value, ShareSnapshotValue)]
    assert [value.snapshot_epoch for value in snapshots] == [0, 1, 2]
    assert batches(snapshots[-1]) == [(0, 7, ACKNOWLEDGED, 1)]
    share.restart()
    assert batches(share.read()) == [(0, 7, ACKNOWLEDGED, 1)]


def test_a_coordinator_that_is_not_elected_refuses(share: ShareCoordinatorHarness) -> None:
    share.coordinator.unload(0)
    assert share.read().error_code == ErrorCode.NOT_COORDINATOR


def test_an_answer_waits_until_its_record_is_committed(share: ShareCoordinatorHarness) -> None:
    share.initialize()
    share.log.hold = True
    answers: list[object] = []
    share.send_initialize(state_epoch=2).when_done(answers.append)
    assert not answers
    share.log.release(share.tp)
    assert answers


def test_a_state_of_an_unknown_version_is_refused_until_it_is_initialized_again(share: ShareCoordinatorHarness) -> None:
    share.initialize()
    share.initialize(partition=1)
    _damage_newest_value(share)
    share.restart()
    assert share.read(partition=1).error_code == ErrorCode.NOT_COORDINATOR
    assert share.read(partition=0).error_code == ErrorCode.NONE
    assert share.shard.redundant_before() == 0
    assert share.initialize(partition=1, state_epoch=5).error_code == ErrorCode.NONE
    assert share.read(partition=1).state_epoch == 5


def _damage_newest_value(share: ShareCoordinatorHarness) -> None:
    """The value of the newest record gets version 9."""
    _, key, value = share.records()[-1]

    class Newer(ShareRecordCodec):
        def encode(self, key: object, value: object) -> tuple[bytes, bytes | None]:
            encoded, body = super().encode(key, value)
            return encoded, b"\0\x09" + (body or b"")[2:]

    ((batch, _),) = Newer().batches([(key, value)], 0, None)
    share.log.append(share.tp, batch)
