"""The session cache as KIP-227 describes it."""

from __future__ import annotations

from random import Random

import pytest

from ottla.broker.fetch.session import FetchPartition, FetchSession
from ottla.broker.fetch.session_cache import EVICTION_MS_MIN, FetchSessionCache
from ottla.broker.replication.follower_session import EPOCH_MAX
from ottla.protocol.errors import ErrorCode, KafkaError


def wanted(*indexes: int) -> dict[tuple[bytes | str, int], FetchPartition]:
    return {("t", i): FetchPartition("t", bytes(16), i, 0, 1024) for i in indexes}


def cache(slots: int = 10) -> FetchSessionCache:
    return FetchSessionCache(slots, Random(7))


def opened(sessions: FetchSessionCache, *indexes: int, follower: bool = False, now_ms: int = 0) -> FetchSession | None:
    session = FetchSession(wanted(*indexes), replica_id=2 if follower else -1)
    return session if sessions.open(session, now_ms) else None


def refused(sessions: FetchSessionCache, session_id: int, epoch: int, *, uses_topic_ids: bool = False) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        sessions.incremental(session_id, epoch, uses_topic_ids=uses_topic_ids, now_ms=0)
    return caught.value.code


def test_incremental_requests_count_the_epoch_up_and_a_repeated_one_is_refused() -> None:
    sessions = cache()
    session = opened(sessions, 0)
    assert session is not None
    for epoch in (1, 2, 3):
        assert sessions.incremental(session.id, epoch, uses_topic_ids=False, now_ms=0) is session
    assert refused(sessions, session.id, 3) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert refused(sessions, session.id, 5) == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_the_epoch_wraps_to_one_because_zero_opens_a_session() -> None:
    sessions = cache()
    session = opened(sessions, 0)
    assert session is not None
    session.epoch = EPOCH_MAX
    sessions.incremental(session.id, EPOCH_MAX, uses_topic_ids=False, now_ms=0)
    assert session.epoch == 1


def test_an_unknown_or_closed_session_is_distinguished_from_a_wrong_epoch() -> None:
    sessions = cache()
    assert refused(sessions, 99, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    session = opened(sessions, 0)
    assert session is not None
    sessions.close(session.id)
    assert refused(sessions, session.id, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_with_names_refuses_a_request_with_topic_ids() -> None:
    sessions = cache()
    session = opened(sessions, 0)
    assert session is not None
    assert refused(sessions, session.id, 1, uses_topic_ids=True) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_full_cache_of_fresh_sessions_serves_the_next_client_without_one() -> None:
    sessions = cache(slots=2)
    for _ in range(2):
        assert opened(sessions, 0, now_ms=0) is not None
    assert opened(sessions, 0, 1, 2, now_ms=1000) is None
    assert len(sessions) == 2


def test_the_session_idle_longest_gives_its_slot_up() -> None:
    sessions = cache(slots=2)
    stale = opened(sessions, 0, follower=True, now_ms=0)
    fresh = opened(sessions, 0, now_ms=0)
    assert stale and fresh
    later = EVICTION_MS_MIN + 1
    sessions.incremental(fresh.id, 1, uses_topic_ids=False, now_ms=later)
    assert opened(sessions, 0, now_ms=later) is not None
    assert refused(sessions, stale.id, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.incremental(fresh.id, 2, uses_topic_ids=False, now_ms=later) is fresh


def test_a_follower_takes_the_smallest_consumers_slot_at_once() -> None:
    sessions = cache(slots=2)
    small = opened(sessions, 0, now_ms=0)
    large = opened(sessions, 0, 1, now_ms=0)
    assert small and large
    assert opened(sessions, 0, follower=True, now_ms=1) is not None
    assert refused(sessions, small.id, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.evictions == 1


def test_a_consumer_never_takes_a_followers_slot_that_is_in_use() -> None:
    sessions = cache(slots=1)
    follower = opened(sessions, 0, follower=True, now_ms=0)
    assert follower is not None
    later = EVICTION_MS_MIN + 1
    sessions.incremental(follower.id, 1, uses_topic_ids=False, now_ms=later)
    assert opened(sessions, *range(50), now_ms=later) is None


def test_updates_keep_the_place_of_a_partition_and_data_moves_it_to_the_end() -> None:
    session = FetchSession(wanted(0, 1, 2))
    session.change(wanted(0, 3).items(), [("t", 1)])
    assert [each.index for each in session.active] == [0, 2, 3]
    session.move_to_end(session.partitions["t", 0])
    assert [each.index for each in session.active] == [2, 3, 0]


def test_an_incremental_response_says_only_what_is_new_and_repeats_after_an_error() -> None:
    partition = FetchPartition("t", bytes(16), 0, 0, 1024)
    assert partition.must_include(5, 0, has_error=False)
    assert not partition.must_include(5, 0, has_error=False)
    assert partition.must_include(5, 2, has_error=False)
    assert partition.must_include(-1, -1, has_error=True)
    assert partition.must_include(5, 2, has_error=False)
