"""A follower gets responses that are late, reject its session, or say that its log is out of the leader's range."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.broker.replication.fetch_requests import FetcherSettings
from ottla.broker.replication.fetcher import NEWS_DELAY_MS, LeaderFetcher
from ottla.broker.replication.leader_link import CONNECT_RETRY_MS_MIN
from ottla.controller.metadata.cluster import RegisteredEndpoint
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.server.world import World
from ottla.storage.directories.recovery import new_log
from ottla.storage.errors import DiskFull, OutOfResources
from ottla.storage.files import Mappings, OsFiles
from ottla.storage.log.log import Log
from ottla.storage.log.partition_dir import LogSpec
from ottla.storage.log_config import LogConfig
from tests.broker.records import batch
from tests.broker.replication.made_partition import made_partition
from tests.broker.replication.test_fetcher import LEADER, SELF, TOPIC_ID, Protocol
from tests.broker.replication.test_partition import NOW_MS, Flushes, Wakeups
from tests.manual_clock import ManualClock
from tests.workers import OneQueue

SETTINGS = FetcherSettings(SELF, 1, 500, 1 << 20, 1 << 20, 1_000, 30_000)
SESSION = 5


class Offsets:
    """A channel to a leader whose log goes from `start` to `end`."""

    def __init__(self, start: int, end: int) -> None:
        self.by_timestamp = {-2: start, -1: end}

    async def request(self, request: ListOffsetsRequest, timeout_ms: int) -> ListOffsetsResponse:
        found = ListOffsetsPartitionResponse(offset=self.by_timestamp[request.topics[0].partitions[0].timestamp])
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])])

    def close(self) -> None:
        return None


class Workers(OneQueue):
    """Workers that run a job when the test lets them."""

    def __init__(self) -> None:
        self.ran = 0

    async def run(self, function: Callable[..., Any], *args: object) -> Any:
        self.ran += 1
        return function(*args)


class Follower:
    """One partition that follows, its fetcher, and its connection to the leader."""

    def __init__(self, log: Log) -> None:
        self.clock = ManualClock()
        self.tasks: list[Coroutine[Any, Any, Any]] = []
        self.workers = Workers()
        # A fetcher uses only time, workers, and tasks of the world. The test runs the tasks.
        world = World(self.clock, Random(0), OsFiles(), None, self.workers, lambda task, name: self.tasks.append(task))
        self.partition = made_partition(SELF, "t", 0, TOPIC_ID, Wakeups(self.clock), Flushes(), 30_000)
        self.partition.become_follower(log, LEADER, 1, 1, [1, 2], [1, 2])
        self.log = log
        self.located: list[RegisteredEndpoint | None] = []
        self.fetcher = LeaderFetcher(world, SETTINGS, LEADER, self._locate, lambda: 1)
        self.protocol = Protocol()
        self.fetcher.link.protocol = self.protocol
        self.follow()

    def _locate(self) -> RegisteredEndpoint | None:
        if not self.located:
            raise ZeroDivisionError
        return self.located.pop()

    def follow(self) -> None:
        self.fetcher.follow(self.partition)
        self.clock.advance(NEWS_DELAY_MS)

    @property
    def asked(self) -> list[tuple[int, int, list[int]]]:
        """Return the session, its epoch, and the offsets in each request."""
        return [
            (r.session_id, r.session_epoch, [p.fetch_offset for topic in r.topics for p in topic.partitions])
            for r in self.protocol.requests
        ]

    def answer(self, data: PartitionData | None = None, *, session_id: int = SESSION, error: int = 0) -> None:
        topics = [] if data is None else [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])]
        response = FetchResponse(session_id=session_id, error_code=error, responses=topics)
        self.fetcher._answered(self.protocol, self.fetcher.session.number, response, None)

    def run_tasks(self) -> None:
        tasks, self.tasks[:] = list(self.tasks), []
        for task in tasks:
            asyncio.run(task)


def records(epoch: int) -> PartitionData:
    return PartitionData(partition_index=0, records=batch([b"x"], leader_epoch=epoch), high_watermark=1)


def test_records_that_were_asked_for_in_an_older_leader_epoch_are_not_appended(log: Log) -> None:
    """Another broker may have led in between: records that this leader sent before need not be in the log of the new epoch."""
    follower = Follower(log)
    follower.partition.become_follower(log, LEADER, 3, 2, [1, 2], [1, 2])
    follower.answer(records(epoch=1))
    assert log.log_end_offset == 0
    assert follower.asked[1] == (SESSION, 1, [0]), "asked again at once, in the new epoch"
    assert follower.protocol.requests[1].topics[0].partitions[0].current_leader_epoch == 3
    follower.answer(records(epoch=3))
    assert log.log_end_offset == 1


SHORTAGES = [
    OutOfResources("log", OSError(errno.EMFILE, "Too many open files")),
    DiskFull("leader-epoch-checkpoint.tmp", OSError(errno.ENOSPC, "No space left on device")),
]


@pytest.mark.parametrize("shortage", SHORTAGES, ids=["no descriptor", "full disk"])
def test_records_whose_flush_found_no_room_do_not_count_before_it_has_been_tried_again(
    log: Log, monkeypatch: pytest.MonkeyPatch, shortage: DiskFull
) -> None:
    """With flush.messages=1 the leader acknowledges everything below the offset of the next fetch. Before the fix a follower
    whose disk had been full did not fetch any more until its next start (seed 632).
    """
    log.update_config(LogConfig(flush_messages=1))
    follower = Follower(log)
    asked_before: list[int] = []

    async def short(function: Callable[..., Any], *args: object) -> Any:
        asked_before.append(len([offsets for *_, offsets in follower.asked if 1 in offsets]))
        if len(asked_before) == 1:
            asyncio.get_running_loop().call_soon(follower.clock.advance, SETTINGS.backoff_ms)
            raise shortage
        return function(*args)

    monkeypatch.setattr(follower.workers, "run", short)
    follower.answer(records(epoch=1))
    follower.run_tasks()
    assert asked_before == [0, 0] and log.recovery_point == 1
    follower.clock.advance(NEWS_DELAY_MS)
    follower.answer()
    assert follower.asked[-1] == (SESSION, 2, [1])


@pytest.mark.parametrize("leader_epoch", [1, 2])
def test_metadata_that_comes_during_a_flush_does_not_acknowledge_what_is_flushed(log: Log, leader_epoch: int) -> None:
    """Before the fix a larger ISR was enough: the position was sent, the leader acknowledged the records, and a power loss took
    them back.
    """
    log.update_config(LogConfig(flush_messages=1))
    follower = Follower(log)
    follower.answer(records(epoch=1))
    follower.partition.become_follower(log, LEADER, leader_epoch, 2, [1, 2], [1, 2, 3])
    follower.follow()
    follower.answer()
    assert not any(1 in offsets for *_, offsets in follower.asked), "asked before the flush"
    follower.run_tasks()
    assert log.recovery_point == 1
    follower.clock.advance(NEWS_DELAY_MS)
    assert follower.asked[-1][2] == [1]
    assert follower.protocol.requests[-1].topics[0].partitions[0].current_leader_epoch == leader_epoch


def test_a_new_leader_is_asked_for_nothing_before_the_records_of_the_former_one_are_flushed(log: Log) -> None:
    log.update_config(LogConfig(flush_messages=1))
    log.append(batch([b"x"]), leader_epoch=1, now_ms=NOW_MS)
    follower = Follower(log)
    assert not any(1 in offsets for *_, offsets in follower.asked), "asked before the flush"
    follower.run_tasks()
    follower.clock.advance(NEWS_DELAY_MS)
    assert follower.asked[-1][2] == [1] and log.recovery_point == 1


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ],
)
def test_a_session_that_the_leader_does_not_have_is_opened_again_on_the_same_connection(
    log: Log, error: ErrorCode
) -> None:
    follower = Follower(log)
    follower.answer()
    assert follower.asked[1:] == [(SESSION, 1, [])]
    follower.answer(session_id=0, error=error)
    assert follower.asked[2:] == [(0, 0, [0])]


def test_any_other_error_of_a_whole_fetch_gives_the_connection_up(log: Log) -> None:
    follower = Follower(log)
    follower.answer(session_id=0, error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert follower.fetcher.link.protocol is None
    follower.clock.advance(SETTINGS.backoff_ms)
    assert len(follower.tasks) == 1, "it connects again after the pause"
    follower.tasks[0].close()


def test_an_answer_of_another_session_than_the_one_asked_makes_the_next_request_full(log: Log) -> None:
    follower = Follower(log)
    follower.answer()
    follower.answer(session_id=SESSION + 1)
    assert follower.asked[1:] == [(SESSION, 1, []), (0, 0, [0])]


@pytest.mark.parametrize(("start", "end", "expected"), [(0, 1, (0, 1)), (0, 3, (0, 3)), (7, 9, (7, 7))])
def test_a_log_that_is_out_of_the_leaders_range_is_truncated_to_its_end_or_restarted_at_its_start(
    log: Log, start: int, end: int, expected: tuple[int, int]
) -> None:
    for _ in range(3):
        log.append(batch([b"x"]), leader_epoch=1, now_ms=NOW_MS)
    follower = Follower(log)
    follower.fetcher.link.channel = Offsets(start, end)
    follower.answer(PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
    follower.run_tasks()
    assert (log.log_start_offset, log.log_end_offset) == expected
    follower.clock.advance(NEWS_DELAY_MS)
    assert follower.asked[-1][2] == [expected[1]]


def test_a_connection_attempt_that_fails_in_an_unexpected_way_is_not_the_last(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    follower = Follower(log)
    follower.fetcher._give_up()
    follower.clock.advance(SETTINGS.backoff_ms)
    follower.run_tasks()
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]
    follower.located.append(None)
    follower.clock.advance(CONNECT_RETRY_MS_MIN)
    follower.run_tasks()
    assert not follower.located, "it has asked for the address again"


def diverging(end_offset: int) -> PartitionData:
    return PartitionData(partition_index=0, diverging_epoch=EpochEndOffset(epoch=1, end_offset=end_offset))


def with_many_producers(log: Log, monkeypatch: pytest.MonkeyPatch) -> Follower:
    """Return a follower whose log has a snapshot of its producers at offset 4, and ends at 8."""
    monkeypatch.setattr("ottla.storage.producers.producer_snapshots.PRODUCERS_AT_ONCE", 3)
    for number in range(8):
        records = batch([b"x"], producer_id=number % 4, producer_epoch=0, base_sequence=number // 4)
        log.append(records, leader_epoch=1, now_ms=NOW_MS)
        if number == 3:
            log.snapshot_producers()
            log.flush()
    return Follower(log)


def test_a_truncation_with_many_producers_has_their_snapshot_read_on_a_worker_and_asks_for_nothing_meanwhile(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = with_many_producers(log, monkeypatch)
    follower.answer(diverging(6))
    follower.clock.advance(1_000)
    assert log.log_end_offset == 8
    assert follower.asked[1:] == [(SESSION, 1, [])], "other partitions only"
    reads: list[str] = []
    monkeypatch.setattr(OsFiles, "read", _noting(reads, follower))
    follower.run_tasks()
    assert log.log_end_offset == 6
    assert [state.last_sequence for state in log.producers] == [1, 1, 0, 0]
    assert follower.workers.ran == 1 and reads == ["worker"]
    follower.answer()
    follower.clock.advance(1)
    assert follower.asked[-1] == (SESSION, 2, [6])


def test_metadata_that_changes_only_the_isr_ends_no_truncation(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the fix the partition was fetched again beside the truncation, and diverged again: the second truncation removed
    records that were appended, and acknowledged to the leader, after the first one.
    """
    follower = with_many_producers(log, monkeypatch)
    follower.answer(diverging(6))
    follower.partition.become_follower(log, LEADER, 1, 2, [1, 2], [1, 2, 3])
    follower.follow()
    follower.clock.advance(SETTINGS.timeout_ms)
    assert not any(8 in offsets for *_, offsets in follower.asked[1:]), "asked beside the truncation"
    follower.run_tasks()
    assert log.log_end_offset == 6
    follower.answer()
    follower.clock.advance(NEWS_DELAY_MS)
    assert follower.asked[-1][2] == [6]


def test_what_a_truncation_has_left_is_flushed_before_the_next_fetch_acknowledges_it(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the fix a partition whose flush was not begun after a truncation was never fetched again (seed 166)."""
    follower = with_many_producers(log, monkeypatch)
    log.update_config(LogConfig(flush_messages=1))
    follower.partition.update_config()
    follower.answer(diverging(6))
    follower.run_tasks()
    assert log.log_end_offset == 6 and log.recovery_point < 6
    assert not any(6 in offsets for *_, offsets in follower.asked)
    follower.run_tasks()
    assert log.recovery_point == 6
    follower.answer()
    follower.clock.advance(NEWS_DELAY_MS)
    assert follower.asked[-1][2] == [6]


def test_metadata_that_changes_only_the_isr_does_not_ask_beside_the_search_for_the_leaders_range(log: Log) -> None:
    log.append(batch([b"x"]), leader_epoch=1, now_ms=NOW_MS)
    follower = Follower(log)
    follower.fetcher.link.channel = Offsets(0, 1)
    follower.answer(PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
    asked = len(follower.asked)
    follower.partition.become_follower(log, LEADER, 1, 2, [1, 2], [1, 2, 3])
    follower.follow()
    follower.answer()
    follower.clock.advance(SETTINGS.timeout_ms)
    assert not any(offsets for *_, offsets in follower.asked[asked:])
    follower.run_tasks()
    follower.clock.advance(NEWS_DELAY_MS)
    assert follower.asked[-1][2] == [1]


def _noting(reads: list[str], follower: Follower) -> Callable[[OsFiles, str], bytes | None]:
    read = OsFiles.read

    def noting(files: OsFiles, path: str) -> bytes | None:
        if path.endswith(".snapshot"):
            reads.append("worker" if follower.workers.ran else "loop")
        return read(files, path)

    return noting


def test_a_log_that_follows_in_another_epoch_by_the_end_of_the_disk_job_is_not_truncated(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = with_many_producers(log, monkeypatch)
    follower.answer(diverging(6))
    follower.partition.become_follower(log, LEADER, 3, 2, [1, 2], [1, 2])
    follower.run_tasks()
    assert log.log_end_offset == 8, "another leader epoch has another answer"


def test_a_follower_that_rolls_by_time_has_its_sync_on_a_worker(tmp_path: Path) -> None:
    config = LogConfig(segment_ms=60_000)
    log = new_log(LogSpec(OsFiles(), Mappings(), str(tmp_path / "t-0"), "t", 0, TOPIC_ID, config, now_ms=NOW_MS))
    follower = Follower(log)
    for offset, timestamp in enumerate((NOW_MS, NOW_MS + 120_000)):
        sent = batch([b"x"], timestamp=timestamp, leader_epoch=1, base_offset=offset)
        follower.answer(PartitionData(partition_index=0, records=sent, high_watermark=offset))
        assert len(follower.tasks) == 1, "the first files, and the sync before the roll"
        follower.run_tasks()
        assert log.log_end_offset == offset + 1
    assert len(log.segments) == 2
    log.close()


def test_a_connection_that_ends_while_the_directory_for_its_records_is_made_leaves_no_request_to_wait_for(
    tmp_path: Path,
) -> None:
    """Simulator, seed 400: the new connection never got a Fetch, and the replica stayed outside of the ISR."""
    log = new_log(LogSpec(OsFiles(), Mappings(), str(tmp_path / "t-0"), "t", 0, TOPIC_ID, LogConfig()))
    follower = Follower(log)
    follower.answer(records(epoch=1))
    assert len(follower.tasks) == 1, "the directory is made on a worker"
    new = Protocol()
    follower.fetcher._connected(new, 17)
    follower.run_tasks()
    assert len(new.requests) == 1
    assert log.log_end_offset == 0, "the records will come again on the new connection"
    log.close()
