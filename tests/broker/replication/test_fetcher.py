"""A follower gets a Fetch response with many partitions at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.broker.replication.fetch_requests import FetcherSettings
from ottla.broker.replication.fetcher import IN_FLIGHT_MAX, TURN_MS, LeaderFetcher
from ottla.broker.replication.leader_link import CONNECT_RETRY_MS_MAX, CONNECT_RETRY_MS_MIN
from ottla.broker.replication.partition import Partition
from ottla.protocol.api import Api
from ottla.protocol.compile import decode
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.server.network.wire import ChannelClosed
from ottla.server.world import World
from ottla.storage.directories.recovery import new_log
from ottla.storage.files import Mappings, OsFiles
from ottla.storage.log.partition_dir import LogSpec
from ottla.storage.log_config import LogConfig
from tests.broker.records import batch
from tests.broker.replication.made_partition import made_partition
from tests.broker.replication.test_partition import Flushes, Wakeups
from tests.manual_clock import ManualClock
from tests.workers import OneQueue

TOPIC_ID = bytes(range(16))
LEADER, SELF = 1, 2
COUNT = 10
SETTINGS = FetcherSettings(SELF, 1, 500, 1 << 20, 1 << 20, 1_000, 30_000)


class Slow(ManualClock):
    """A clock that advances each time it is read."""

    def mono_ms(self) -> int:
        self.now_ms += TURN_MS // 3
        return self.now_ms


class Protocol:
    """A connection that accepts requests."""

    closed = False

    def __init__(self) -> None:
        self.requests: list[Any] = []

    def call(self, client_id: str, request: Any, *args: Any) -> None:
        self.requests.append(request)

    def call_encoded(self, request: bytes, api: Api, version: int, *args: Any) -> None:
        client_id_bytes = int.from_bytes(request[:2], "big")
        self.requests.append(decode(FetchRequest, request[2 + client_id_bytes + 1 :], version))


def following(directory: Path, count: int) -> Iterator[list[Partition]]:
    """Yield this number of partitions of a topic, each with a log, which is closed in the end."""
    found = []
    for index in range(count):
        log = new_log(LogSpec(OsFiles(), Mappings(), str(directory / f"t-{index}"), "t", index, TOPIC_ID, LogConfig()))
        partition = made_partition(SELF, "t", index, TOPIC_ID, Wakeups(ManualClock()), Flushes(), 30_000)
        partition.become_follower(log, LEADER, 1, 1, [1, 2], [1, 2])
        found.append(partition)
    yield found
    for partition in found:
        assert partition.log is not None
        partition.log.close()


@pytest.fixture
def partitions(tmp_path: Path) -> Iterator[list[Partition]]:
    yield from following(tmp_path, COUNT)


def test_records_of_many_partitions_are_taken_in_turns_and_none_is_lost(partitions: list[Partition]) -> None:
    for partition in partitions:
        assert partition.log is not None
        partition.log.room.create_files()
    clock = Slow()
    # The type of World requires all components, but a fetcher handles a response with the clock and the files alone.
    world = World(clock, Random(0), OsFiles(), None, None, None)
    fetcher = LeaderFetcher(world, SETTINGS, LEADER, lambda: None, lambda: 1)
    protocol = Protocol()
    fetcher.link.protocol = protocol
    for partition in partitions:
        fetcher.follow(partition)
    clock.advance(1)
    assert len(protocol.requests) == 1
    received = bytearray(batch([b"x"], leader_epoch=1))
    answered = [PartitionData(partition_index=i, records=memoryview(received), high_watermark=1) for i in range(COUNT)]
    topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=answered)
    fetcher._answered(protocol, 1, FetchResponse(session_id=5, responses=[topic]), None)

    ends = [partition.log.log_end_offset for partition in partitions if partition.log]
    assert 0 < sum(ends) < COUNT, "the loop has other work, too"
    assert len(protocol.requests) == 1, "the next request says what became of all"
    received[:] = bytes(len(received))  # the receive buffer is used again
    clock.advance(1_000)
    assert [partition.log.log_end_offset for partition in partitions if partition.log] == [1] * COUNT
    assert len(protocol.requests) == 2
    assert [p.fetch_offset for topic in protocol.requests[1].topics for p in topic.partitions] == [1] * COUNT


class Worker(OneQueue):
    """A thread beside the loop. `calls` shows what the loop did meanwhile."""

    def __init__(self) -> None:
        self.calls = 0

    async def run(self, function: Callable[..., None], *args: object) -> None:
        self.calls += 1
        function(*args)


def test_first_records_of_many_partitions_make_no_file_on_the_loop_and_none_is_lost(
    partitions: list[Partition],
) -> None:
    clock, worker, tasks = ManualClock(), Worker(), list[Coroutine[Any, Any, None]]()
    world = World(clock, Random(0), OsFiles(), None, worker, lambda task, name: tasks.append(task))
    fetcher = LeaderFetcher(world, SETTINGS, LEADER, lambda: None, lambda: 1)
    protocol = Protocol()
    fetcher.link.protocol = protocol
    for partition in partitions:
        fetcher.follow(partition)
    clock.advance(1)
    received = bytearray(batch([b"x"], leader_epoch=1))
    answered = [PartitionData(partition_index=i, records=memoryview(received), high_watermark=1) for i in range(COUNT)]
    topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=answered)
    fetcher._answered(protocol, 1, FetchResponse(session_id=5, responses=[topic]), None)

    logs = [partition.log for partition in partitions if partition.log]
    assert not any(log.partition_dir.exists for log in logs)
    assert len(protocol.requests) == 1, "the next request says what became of all"
    received[:] = bytes(len(received))  # the receive buffer is used again
    asyncio.run(tasks.pop())
    assert (worker.calls, tasks) == (COUNT, [])
    assert [log.log_end_offset for log in logs] == [1] * COUNT
    assert len(protocol.requests) == 2
    assert [p.fetch_offset for topic in protocol.requests[1].topics for p in topic.partitions] == [1] * COUNT


def test_a_leader_that_does_not_answer_gets_one_request_and_one_more_for_news(partitions: list[Partition]) -> None:
    clock, protocol = ManualClock(), Protocol()
    world = World(clock, Random(0), OsFiles(), None, None, None)
    fetcher = LeaderFetcher(world, SETTINGS, LEADER, lambda: None, lambda: 1)
    fetcher.link.protocol = protocol
    for partition in partitions:
        fetcher.follow(partition)
        clock.advance(10)
        if len(protocol.requests) == 1:
            fetcher._answered(protocol, 1, FetchResponse(session_id=5), None)
            clock.advance(10)
    assert len(protocol.requests) == 1 + IN_FLIGHT_MAX, "the answered one, and those under way"


def test_a_leader_that_is_gone_is_tried_again_after_ever_longer_pauses_up_to_a_bound(
    partitions: list[Partition],
) -> None:
    clock = ManualClock()
    world = World(clock, Random(0), OsFiles(), None, None, lambda task, name: task.close())
    fetcher = LeaderFetcher(world, SETTINGS, LEADER, lambda: None, lambda: 1)
    pauses = []
    for _ in range(10):
        fetcher._lost(ChannelClosed("gone"))
        (timer,) = clock.armed
        pauses.append(timer.at_ms - clock.now_ms)
        clock.advance(int(pauses[-1]))
    assert pauses[:3] == [CONNECT_RETRY_MS_MIN, 2 * CONNECT_RETRY_MS_MIN, 4 * CONNECT_RETRY_MS_MIN]
    assert pauses[-2:] == [CONNECT_RETRY_MS_MAX, CONNECT_RETRY_MS_MAX]
