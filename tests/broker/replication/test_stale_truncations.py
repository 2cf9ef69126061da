"""A truncation, or the search for the leader's range, ends after something else has happened to the partition.

It ends only its own wait. Its decision is valid only for the log and the role for which it was made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.broker.replication.truncation import Basis, truncate_after
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import PartitionData
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.storage.directories.recovery import open_log
from ottla.storage.errors import StorageFailure
from ottla.storage.files import Mappings, OsFiles
from ottla.storage.log.log import Log
from ottla.storage.log.partition_dir import LogSpec
from ottla.storage.log.truncate import truncate_to, truncation_job
from ottla.storage.log_config import LogConfig
from tests.broker.records import batch
from tests.broker.replication.test_fetcher import LEADER, TOPIC_ID
from tests.broker.replication.test_fetcher_answers import (
    NEWS_DELAY_MS,
    SETTINGS,
    Follower,
    diverging,
    with_many_producers,
)
from tests.broker.replication.test_partition import NOW_MS

OTHER = 3


class SlowOffsets:
    """A channel to a leader whose log is [0, 2): each response waits for `answer`."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, asyncio.Future[int]]] = []

    async def request(self, request: ListOffsetsRequest, timeout_ms: int) -> ListOffsetsResponse:
        timestamp = request.topics[0].partitions[0].timestamp
        waiting: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.asked.append((timestamp, waiting))
        found = ListOffsetsPartitionResponse(offset=await waiting)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])])

    def close(self) -> None:
        return None


def offsets_asked(follower: Follower, since: int = 0) -> list[int]:
    return [offset for *_, offsets in follower.asked[since:] for offset in offsets]


def appended(offset: int, epoch: int) -> PartitionData:
    sent = batch([b"acknowledged"], base_offset=offset, leader_epoch=epoch)
    return PartitionData(partition_index=0, records=sent, high_watermark=offset)


def same_leader_again(follower: Follower) -> int:
    """An election by which the same broker leads in a new epoch."""
    follower.partition.become_follower(follower.log, LEADER, 2, 2, [1, 2], [1, 2])
    follower.follow()
    return 2


def another_leader_between(follower: Follower) -> int:
    """Let another broker lead in between. The fetcher of the former leader stays, because it has other partitions; this one is
    unfollowed and followed again.
    """
    follower.partition.become_follower(follower.log, OTHER, 2, 2, [1, 2, 3], [1, 2, 3])
    follower.fetcher.unfollow(follower.partition)
    follower.partition.become_follower(follower.log, LEADER, 3, 3, [1, 2, 3], [1, 2, 3])
    follower.follow()
    return 3


def led_between(follower: Follower) -> int:
    """Let this broker lead in between, and follow again, within the wait."""
    follower.fetcher.unfollow(follower.partition)
    follower.partition.become_leader(follower.log, 2, 2, [1, 2], [1, 2], NOW_MS)
    follower.partition.become_follower(follower.log, LEADER, 3, 3, [1, 2], [1, 2])
    follower.follow()
    return 3


CHANGES = [same_leader_again, another_leader_between, led_between]


@pytest.mark.parametrize("change", CHANGES)
def test_a_truncation_of_an_older_leader_epoch_does_not_end_the_wait_for_the_present_one(
    log: Log, monkeypatch: pytest.MonkeyPatch, change: Callable[[Follower], int]
) -> None:
    """Before the fix the partition was fetched beside the second truncation, and a third one removed records that had been
    acknowledged since.
    """
    follower = with_many_producers(log, monkeypatch)
    follower.answer(diverging(6))
    epoch = change(follower)
    follower.answer()
    follower.clock.advance(SETTINGS.timeout_ms)
    follower.answer(diverging(6))
    first, second = follower.tasks
    follower.tasks.clear()
    asked = len(follower.asked)
    asyncio.run(first)
    follower.clock.advance(SETTINGS.timeout_ms)
    assert log.log_end_offset == 8 and not offsets_asked(follower, asked), "asked beside the second truncation"
    asyncio.run(second)
    assert log.log_end_offset == 6
    follower.answer()
    follower.clock.advance(SETTINGS.timeout_ms)
    follower.answer(appended(6, epoch))
    follower.clock.advance(SETTINGS.timeout_ms)
    assert offsets_asked(follower, asked) == [6, 7] and not follower.tasks
    assert log.log_end_offset == 7


@pytest.mark.parametrize("change", CHANGES)
def test_a_search_of_an_older_leader_epoch_does_not_end_the_wait_for_the_present_one(
    log: Log, loop: asyncio.AbstractEventLoop, change: Callable[[Follower], int]
) -> None:
    """A search always waits for two responses. So an acknowledged record could be lost without any disk job."""
    for _ in range(4):
        log.append(batch([b"x"]), leader_epoch=1, now_ms=NOW_MS)
    follower = Follower(log)
    channel = SlowOffsets()
    follower.fetcher.link.channel = channel

    def spin(data: PartitionData | None = None) -> None:
        follower.answer(data)
        run_on()

    def run_on() -> None:
        follower.clock.advance(SETTINGS.timeout_ms)
        while follower.tasks:
            loop.create_task(follower.tasks.pop(0))
        for _ in range(5):
            loop.run_until_complete(asyncio.sleep(0))

    def respond(which: int) -> None:
        timestamp, waiting = channel.asked.pop(which)
        waiting.set_result({-1: 2, -2: 0}[timestamp])
        run_on()

    out_of_range = PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    spin(out_of_range)
    epoch = change(follower)
    spin()
    spin(out_of_range)
    assert len(channel.asked) == 2, "the searches of both epochs"
    asked = len(follower.asked)
    respond(0)
    respond(-1)  # the first search has both responses now
    assert log.log_end_offset == 4 and not offsets_asked(follower, asked), "asked beside the second search"
    respond(0)
    respond(0)
    assert log.log_end_offset == 2 and not channel.asked
    spin()
    spin(appended(2, epoch))
    assert offsets_asked(follower, asked) == [2, 3] and log.log_end_offset == 3


def test_a_flush_of_before_the_partition_was_followed_again_does_not_end_the_wait_for_the_flush_of_now(
    log: Log,
) -> None:
    log.update_config(LogConfig(flush_messages=1))
    log.append(batch([b"x"]), leader_epoch=1, now_ms=NOW_MS)
    follower = Follower(log)
    session, key = follower.fetcher.session, (TOPIC_ID, 0)
    before = session.followed[key].wait
    follower.fetcher.unfollow(follower.partition)
    follower.follow()
    assert before is not None and session.end(before, 0) is None
    assert session.followed[key].wait is not None
    follower.run_tasks()
    follower.clock.advance(NEWS_DELAY_MS)
    assert offsets_asked(follower) == [1] and log.recovery_point == 1


def append_one(follower: Follower) -> None:
    follower.log.append(batch([b"new"]), leader_epoch=1, now_ms=NOW_MS)


def truncate_and_append(follower: Follower) -> None:
    truncate_to(follower.log, 7)
    append_one(follower)


def lead(follower: Follower) -> None:
    follower.partition.become_leader(follower.log, 2, 2, [1, 2], [1, 2], NOW_MS)


def remove(follower: Follower) -> None:
    """Remove the partition: the topic is deleted, or the replica reassigned away. A new one of the same name has another
    `Partition`.
    """
    follower.partition.resign()


def fail(follower: Follower) -> None:
    follower.partition.go_offline()


@pytest.mark.parametrize(
    "change", [append_one, truncate_and_append, same_leader_again, led_between, lead, remove, fail]
)
def test_a_truncation_is_dropped_if_what_it_was_decided_on_has_changed(
    log: Log, monkeypatch: pytest.MonkeyPatch, change: Callable[[Follower], object]
) -> None:
    follower = with_many_producers(log, monkeypatch)
    job = truncation_job(log, 6)
    assert job is not None
    world = follower.fetcher._world
    truncation = truncate_after(world, job, Basis.of(follower.partition, log), 6)
    change(follower)
    end = log.log_end_offset
    asyncio.run(truncation)
    assert log.log_end_offset == end


def test_a_log_that_has_moved_to_another_directory_within_the_wait_is_truncated_there(
    log: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The decision holds for the old log only. The partition is fetched again, and its leader asks for the same truncation of
    the new log.
    """
    follower = with_many_producers(log, monkeypatch)
    follower.answer(diverging(6))
    spec = LogSpec(OsFiles(), Mappings(), str(tmp_path / "moved" / "t-0"), "t", 0, TOPIC_ID, LogConfig())
    moved = open_log(spec, clean=True)
    for _ in range(8):
        moved.append(batch([b"x"]), leader_epoch=1, now_ms=NOW_MS)
    follower.partition.log_replaced(moved)
    follower.run_tasks()
    assert (log.log_end_offset, moved.log_end_offset) == (8, 8)
    follower.answer()
    follower.clock.advance(NEWS_DELAY_MS)
    follower.answer(diverging(6))
    follower.run_tasks()
    assert moved.log_end_offset == 6
    moved.close()


def test_an_acknowledged_offset_of_this_leader_epoch_is_never_cut_whatever_asks_for_it(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    """Such a request is a bug of this broker, or damage on the leader's disk: the log stays, the partition is tried again, and
    others are fetched.
    """
    follower = Follower(log)
    follower.answer(appended(0, epoch=1))
    follower.answer(appended(1, epoch=1))
    assert log.log_end_offset == 2 and not caplog.records
    follower.answer(diverging(1))
    assert log.log_end_offset == 2
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [AssertionError]
    assert follower.fetcher.link.protocol is follower.protocol, "the other partitions keep their connection"
    follower.answer()
    follower.clock.advance(SETTINGS.backoff_ms)
    assert offsets_asked(follower)[-1] == 2
    follower.partition.become_follower(log, LEADER, 2, 2, [1, 2], [1, 2])
    follower.follow()
    follower.answer()
    follower.answer(diverging(1))
    assert log.log_end_offset == 1, "in a new epoch the leader may be another, and an unclean election may have lost it"


def test_a_storage_failure_of_a_truncation_delays_the_next_fetch(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = with_many_producers(log, monkeypatch)
    follower.answer(diverging(6))

    async def failing(*args: object) -> None:
        raise StorageFailure("log", OSError(5, "EIO"))

    monkeypatch.setattr(follower.workers, "run", failing)
    follower.run_tasks()
    asked = len(follower.asked)
    follower.answer()
    follower.clock.advance(SETTINGS.backoff_ms - 1)
    assert not offsets_asked(follower, asked)
    follower.clock.advance(1)
    assert offsets_asked(follower, asked) == [8]
