"""A leader's ISR grows and shrinks: the proposals, the waits of the high watermark, and the effects of each answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.fetch.reader import require_follower
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.wakeups import Wakeups
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.directories.recovery import open_log
from ottla.storage.files import Mappings, OsFiles
from ottla.storage.log.log import Log
from ottla.storage.log.partition_dir import LogSpec
from ottla.storage.log_config import LogConfig
from tests.broker.records import batch
from tests.broker.replication.made_partition import made_partition
from tests.broker.replication.test_partition import NOW_MS, TOPIC_ID, Flushes, watching
from tests.manual_clock import ManualClock

LAG_MS = 30_000


class Proposals:
    """Keeps the proposals instead of sending them to the controller."""

    def __init__(self) -> None:
        self.sent: list[list[int]] = []
        self.fenced: set[int] = set()

    def may_be_in_sync(self, replica_id: int, broker_epoch: int) -> bool:
        return replica_id not in self.fenced

    def submit(self, partition: Partition) -> None:
        assert partition.isr.proposed is not None
        self.sent.append(sorted(partition.isr.proposed))

    def close(self) -> None:
        self.sent.clear()


@pytest.fixture
def proposals() -> Proposals:
    return Proposals()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    opened = open_log(
        LogSpec(OsFiles(), Mappings(), str(tmp_path / "t-0"), "t", 0, TOPIC_ID, LogConfig(min_insync_replicas=2)),
        clean=True,
    )
    yield opened
    opened.close()


@pytest.fixture
def partition(proposals: Proposals) -> Partition:
    return made_partition(1, "t", 0, TOPIC_ID, Wakeups(ManualClock()), Flushes(), LAG_MS, proposals)


def lead(partition: Partition, log: Log, isr: tuple[int, ...], partition_epoch: int = 1) -> None:
    partition.become_leader(log, 1, partition_epoch, (1, 2, 3), isr, NOW_MS)


def fetch(partition: Partition, replica: int, offset: int, now_ms: int = NOW_MS, broker_epoch: int = 10) -> None:
    require_follower(partition, replica, 1, broker_epoch)
    partition.record_follower_fetch(replica, offset, 0, now_ms, broker_epoch)


def append(partition: Partition) -> None:
    partition.append(batch([b"a"]), -1, NOW_MS)


def test_a_follower_that_has_caught_up_is_proposed_and_waited_for_before_the_answer(
    partition: Partition, log: Log, proposals: Proposals
) -> None:
    lead(partition, log, (1, 2))
    append(partition)
    fetch(partition, 2, 1)
    assert log.high_watermark == 1
    fetch(partition, 3, 1)
    assert proposals.sent == [[1, 2, 3]]
    append(partition)
    fetch(partition, 2, 2)
    assert log.high_watermark == 1, "the controller may have made 3 a candidate already (invariant 6)"
    fetch(partition, 3, 2)
    assert log.high_watermark == 2


def test_a_follower_behind_the_watermark_is_not_proposed(partition: Partition, log: Log, proposals: Proposals) -> None:
    lead(partition, log, (1, 2))
    for _ in range(3):
        append(partition)
    fetch(partition, 2, 3)
    fetch(partition, 3, 2)
    assert proposals.sent == []


def test_a_fenced_broker_is_not_proposed_however_well_it_fetches(
    partition: Partition, log: Log, proposals: Proposals
) -> None:
    lead(partition, log, (1, 2))
    proposals.fenced.add(3)
    fetch(partition, 3, 0)
    assert proposals.sent == []


def test_a_silent_follower_is_proposed_to_go_and_waited_for_until_the_controller_agrees(
    partition: Partition, log: Log, proposals: Proposals
) -> None:
    lead(partition, log, (1, 2, 3))
    append(partition)
    late_ms = NOW_MS + LAG_MS + 1
    fetch(partition, 2, 1, late_ms)
    partition.isr.maybe_shrink(log, late_ms)
    assert proposals.sent == [[1, 2]]
    assert log.high_watermark == 0
    partition.isr_altered(1, 2, [1, 2])
    assert (log.high_watermark, partition.isr.partition_epoch, partition.isr.proposed) == (1, 2, None)


def test_a_follower_that_had_nothing_to_fetch_is_as_late_as_its_sessions_last_request(
    partition: Partition, log: Log, proposals: Proposals
) -> None:
    """The fetches of a session do not name idle partitions: an append after hours must not make a follower late that is
    alive.
    """
    lead(partition, log, (1, 2, 3))
    for replica in (2, 3):
        fetch(partition, replica, 0)
        session, _ = watching(partition, replica_id=replica)
        session.contact_ms = NOW_MS + 3 * LAG_MS if replica == 2 else NOW_MS
    now_ms = NOW_MS + 3 * LAG_MS + 500
    partition.append(batch([b"a"]), -1, now_ms)
    partition.isr.maybe_shrink(log, now_ms)
    assert proposals.sent == [[1, 2]], "3 has not fetched yet"


def test_under_min_isr_the_watermark_stands_still(partition: Partition, log: Log) -> None:
    lead(partition, log, (1, 2))
    append(partition)
    lead(partition, log, (1,), partition_epoch=2)
    partition.advance_high_watermark()
    assert log.high_watermark == 0
    with pytest.raises(KafkaError) as refused:
        append(partition)
    assert refused.value.code == ErrorCode.NOT_ENOUGH_REPLICAS


def test_an_ineligible_replica_is_not_waited_for_any_more(partition: Partition, log: Log, proposals: Proposals) -> None:
    lead(partition, log, (1, 2))
    fetch(partition, 3, 0)
    append(partition)
    fetch(partition, 2, 1)
    assert log.high_watermark == 0
    proposals.fenced.add(3)
    partition.isr_rejected(ErrorCode.INELIGIBLE_REPLICA)
    assert log.high_watermark == 1


def test_a_proposal_that_was_overtaken_stands_until_the_metadata_comes(
    partition: Partition, log: Log, proposals: Proposals
) -> None:
    lead(partition, log, (1, 2))
    fetch(partition, 3, 0)
    partition.isr_rejected(ErrorCode.INVALID_UPDATE_VERSION)
    assert partition.isr.maximal == {1, 2, 3}
    lead(partition, log, (1, 2), partition_epoch=5)
    assert (partition.isr.maximal, partition.isr.proposed) == ({1, 2}, None)


@pytest.mark.parametrize(
    ("error", "asks_again"),
    [
        (ErrorCode.UNKNOWN_SERVER_ERROR, True),
        (ErrorCode.INVALID_UPDATE_VERSION, False),
        (ErrorCode.INELIGIBLE_REPLICA, False),
    ],
)
def test_only_a_refusal_that_may_pass_is_asked_again_and_not_at_once(
    partition: Partition, log: Log, proposals: Proposals, error: ErrorCode, asks_again: bool
) -> None:
    lead(partition, log, (1, 2))
    fetch(partition, 3, 0)
    assert partition.isr_rejected(error) is asks_again
    assert proposals.sent == [[1, 2, 3]], "the pause before the next attempt is made by who asks"


def test_a_proposal_made_on_the_controllers_answer_stands_when_the_metadata_of_that_answer_comes_later(
    partition: Partition, log: Log, proposals: Proposals
) -> None:
    """The controller may commit the proposal at any moment: a record that was acknowledged without the new member would be lost
    with this leader.
    """
    lead(partition, log, (1, 2), partition_epoch=4)
    for _ in range(5):
        append(partition)
    fetch(partition, 2, 3)
    partition.isr_altered(1, 5, [1, 2])
    fetch(partition, 3, 3)
    assert proposals.sent == [[1, 2, 3]]
    lead(partition, log, (1, 2), partition_epoch=5)
    assert (partition.isr.proposed, partition.isr.maximal) == ({1, 2, 3}, {1, 2, 3})
    answers: list[ErrorCode] = []
    partition.when_committed(4, answers.append)
    fetch(partition, 2, 5)
    assert (log.high_watermark, answers) == (3, []), "3 may be a candidate by now, and ends at 3"
    partition.isr_altered(1, 6, [1, 2, 3])
    fetch(partition, 3, 5)
    assert (log.high_watermark, answers) == (5, [ErrorCode.NONE])


@pytest.mark.parametrize(
    ("leader_epoch", "replicas"),
    [(2, (1, 2, 3)), (1, (1, 2))],
    ids=["a new leader epoch", "the proposed replica is not assigned any more"],
)
def test_a_proposal_that_the_controller_cannot_make_any_more_is_dropped_by_metadata_of_its_partition_epoch(
    partition: Partition, log: Log, leader_epoch: int, replicas: tuple[int, ...]
) -> None:
    lead(partition, log, (1, 2), partition_epoch=5)
    fetch(partition, 3, 0)
    partition.become_leader(log, leader_epoch, 5, replicas, (1, 2), NOW_MS)
    assert (partition.isr.proposed, partition.isr.maximal) == (None, {1, 2})


def test_an_answer_to_a_proposal_of_an_older_leader_epoch_changes_nothing(partition: Partition, log: Log) -> None:
    lead(partition, log, (1, 2))
    fetch(partition, 3, 0)
    partition.become_leader(log, 2, 2, (1, 2, 3), (1, 2), NOW_MS)
    partition.isr_altered(1, 7, [1, 2, 3])
    assert (partition.isr.members, partition.isr.partition_epoch) == ({1, 2}, 2)


def test_metadata_older_than_the_controllers_answer_is_not_taken_back(
    partition: Partition, log: Log, proposals: Proposals
) -> None:
    lead(partition, log, (1, 2))
    fetch(partition, 3, 0)
    partition.isr_altered(1, 7, [1, 2, 3])
    lead(partition, log, (1, 2), partition_epoch=6)
    assert (partition.isr.members, partition.isr.partition_epoch) == ({1, 2, 3}, 7)


def test_a_fetch_of_the_process_before_does_not_count(partition: Partition, log: Log) -> None:
    lead(partition, log, (1, 2, 3))
    append(partition)
    fetch(partition, 2, 0, broker_epoch=20)
    with pytest.raises(KafkaError) as refused:
        fetch(partition, 2, 1, broker_epoch=10)
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.followers[2].log_end_offset == 0


def test_a_follower_takes_over_records_watermark_and_log_start(partition: Partition, log: Log) -> None:
    partition.become_follower(log, 2, 1, 1, (1, 2, 3), (1, 2, 3))
    records = bytearray(batch([b"a", b"b"]))
    records[12:16] = (1).to_bytes(4, "big")  # the epoch of the leader
    partition.append_as_follower(bytes(records), 1, 0, NOW_MS)
    assert (log.log_end_offset, log.high_watermark, log.epochs.latest) == (2, 1, 1)
    partition.append_as_follower(b"", 2, 1, NOW_MS)
    assert (log.high_watermark, log.log_start_offset) == (2, 1)


def test_an_epoch_led_without_an_append_is_forgotten_when_the_next_leader_does_not_know_it(
    partition: Partition, log: Log
) -> None:
    lead(partition, log, (1, 2, 3))
    assert log.epochs.latest == 1
    partition.become_follower(log, 2, 2, 2, (1, 2, 3), (1, 2, 3))
    partition.truncate_as_follower(0)
    assert log.epochs.latest == -1
