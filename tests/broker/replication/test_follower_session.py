"""A follower asks its leader for everything at first, and for differences afterwards; answers may come too late."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.replication.follower_session import CATCH_UP_BYTES_MIN, FollowerSession
from ottla.broker.replication.partition import Partition
from ottla.protocol.messages.fetch import FetchRequest
from ottla.storage.directories.recovery import open_log
from ottla.storage.files import Mappings, OsFiles
from ottla.storage.log.log import Log
from ottla.storage.log.partition_dir import LogSpec
from ottla.storage.log_config import LogConfig
from tests.broker.records import batch
from tests.broker.replication.made_partition import made_partition
from tests.broker.replication.test_partition import NOW_MS, Flushes, Wakeups
from tests.manual_clock import ManualClock

TOPIC_ID = bytes(range(16))
LEADER, SELF = 1, 2


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    files = OsFiles()
    opened = open_log(
        LogSpec(files, Mappings(), str(tmp_path / "orders-0"), "orders", 0, TOPIC_ID, LogConfig()), clean=True
    )
    yield opened
    opened.close()


def follower(log: Log, index: int = 0, leader_epoch: int = 3) -> Partition:
    clock = ManualClock()
    partition = made_partition(SELF, "orders", index, TOPIC_ID, Wakeups(clock), Flushes(), 30_000)
    partition.become_follower(log, LEADER, leader_epoch, 1, [1, 2], [1, 2])
    return partition


def asked(request: FetchRequest | None) -> list[tuple[int, int]]:
    assert request is not None
    return [(p.partition, p.fetch_offset) for topic in request.topics for p in topic.partitions]


def opened(*partitions: Partition) -> FollowerSession:
    session = FollowerSession(1 << 20)
    for partition in partitions:
        session.add(partition)
    session.request()
    session.answered(77)
    return session


def test_the_first_request_names_everything_and_the_next_only_what_moved(log: Log) -> None:
    first, second = follower(log, 0), follower(log, 1)
    session = FollowerSession(1 << 20)
    session.add(first)
    session.add(second)
    request = session.request()
    assert asked(request) == [(0, 0), (1, 0)] and request is not None and request.session_epoch == 0
    session.answered(77)
    assert asked(session.request()) == []
    log.append(batch([b"a"]), leader_epoch=3, now_ms=NOW_MS)
    session.changed((TOPIC_ID, 0))
    request = session.request()
    assert asked(request) == [(0, 1)]
    assert request is not None and (request.session_id, request.session_epoch) == (77, 2)


def test_metadata_that_changes_only_the_isr_does_not_interrupt_the_fetch_that_waits(log: Log) -> None:
    partition = follower(log)
    session = opened(partition)
    session.add(partition)
    assert not session.has_news
    partition.leader_epoch += 1
    session.add(partition)
    assert session.has_news


def test_a_partition_that_is_not_followed_any_more_is_forgotten_by_the_leader(log: Log) -> None:
    first, second = follower(log, 0), follower(log, 1)
    session = opened(first, second)
    session.remove(first)
    request = session.request()
    assert request is not None
    assert [(f.topic_id, f.partitions) for f in request.forgotten_topics_data] == [(TOPIC_ID, [0])]


def test_an_answer_to_an_older_request_does_not_acknowledge_what_was_sent_since(log: Log) -> None:
    partition = follower(log)
    session = opened(partition)
    waiting = session.number
    partition.become_follower(log, LEADER, 4, 2, [1, 2], [1, 2])
    session.add(partition)
    session.request()
    assert session.asked((TOPIC_ID, 0), waiting) is None
    assert session.asked((TOPIC_ID, 0), session.number) is not None


def test_after_a_lost_connection_the_next_request_is_full(log: Log) -> None:
    session = opened(follower(log, 0), follower(log, 1))
    session.reset()
    request = session.request()
    assert asked(request) == [(0, 0), (1, 0)]
    assert request is not None and (request.session_id, request.session_epoch) == (0, 0)


def test_a_delayed_partition_is_left_out_until_its_time(log: Log) -> None:
    first, second = follower(log, 0), follower(log, 1)
    session = opened(first, second)
    session.delay((TOPIC_ID, 0), 500)
    request = session.request()
    assert request is not None and [f.partitions for f in request.forgotten_topics_data] == [[0]]
    assert session.resume(499) == 500
    assert asked(session.request()) == []
    assert session.resume(500) == -1
    assert asked(session.request()) == [(0, 0)]


def test_with_every_partition_delayed_there_is_nothing_to_ask(log: Log) -> None:
    session = opened(follower(log))
    session.delay((TOPIC_ID, 0), 500)
    assert session.request() is not None  # a request that forgets the partition
    session.answered(0)  # the leader closes a session that has become empty
    assert session.request() is None


def test_a_leader_without_a_slot_for_sessions_is_asked_for_everything_each_time(log: Log) -> None:
    session = FollowerSession(1 << 20)
    session.add(follower(log))
    for _ in range(3):
        request = session.request()
        assert asked(request) == [(0, 0)] and request is not None and request.session_epoch == 0
        session.answered(0)


def partition_bytes(request: FetchRequest | None) -> dict[int, int]:
    assert request is not None
    return {p.partition: p.partition_max_bytes for topic in request.topics for p in topic.partitions}


@pytest.mark.parametrize(("behind", "each"), [(1, 1 << 20), (4, 1 << 18), (100, CATCH_UP_BYTES_MIN)])
def test_partitions_that_catch_up_share_a_part_of_the_response_with_those_in_sync(
    log: Log, behind: int, each: int
) -> None:
    """If each of them got a megabyte, the producers of the other partitions would wait for it."""
    in_sync, late = follower(log, 0), [follower(log, index) for index in range(1, 1 + behind)]
    for partition in late:
        partition.become_follower(log, LEADER, 3, 2, [1, 2], [1])
    session = opened(in_sync, *late)
    for partition in (in_sync, *late):
        session.delay((TOPIC_ID, partition.index), 0)
    session.resume(0)
    assert partition_bytes(session.request()) == {0: 1 << 20} | dict.fromkeys(range(1, 1 + behind), each)


def test_a_smaller_limit_of_the_configuration_counts_for_partitions_that_catch_up_too(log: Log) -> None:
    late = follower(log, 0)
    late.become_follower(log, LEADER, 3, 2, [1, 2], [1])
    session = FollowerSession(1000)
    session.add(late)
    assert partition_bytes(session.request()) == {0: 1000}
