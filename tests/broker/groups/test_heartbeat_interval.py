"""The interval of members that wait for something, and the time of a whole rebalance, in virtual time."""

from __future__ import annotations

from heapq import heappop, heappush

from ottla.broker.groups.consumer.consumer_group import ConsumerGroup
from ottla.broker.groups.modern.modern_group import ModernGroupState
from tests.broker.groups.consumer.member import ConsumerMember
from tests.broker.groups.harness import GroupCoordinatorHarness
from tests.broker.groups.streams.member import StreamsMember
from tests.broker.groups.streams.topologies import stateless

WAITING_MS, INTERVAL_MS = 1_000, 5_000


def test_a_consumer_that_waits_for_anothers_partition_comes_back_within_a_second() -> None:
    harness = GroupCoordinatorHarness(waiting_heartbeat_interval_ms=WAITING_MS)
    harness.topics = {"t": 2}
    first, second = ConsumerMember(harness, "a"), ConsumerMember(harness, "b")
    assert first.beat().heartbeat_interval_ms == INTERVAL_MS
    # There is no second target within the assignment interval of a second.
    assert second.beat().heartbeat_interval_ms == WAITING_MS
    harness.clock.advance(1_000)
    # Now there is a second target, but the first member still has both partitions.
    assert second.beat().heartbeat_interval_ms == WAITING_MS
    # The first member revokes a partition, which may take long; a client reports it as soon as it is done.
    assert first.beat().heartbeat_interval_ms == INTERVAL_MS
    assert first.beat().heartbeat_interval_ms == INTERVAL_MS
    answer = second.beat()
    assert (answer.heartbeat_interval_ms, second.owned) == (INTERVAL_MS, {"t": {1}})


def test_without_the_setting_the_interval_is_the_groups_as_in_kafka() -> None:
    harness = GroupCoordinatorHarness()
    harness.topics = {"t": 2}
    first, second = ConsumerMember(harness, "a"), ConsumerMember(harness, "b")
    assert [first.beat().heartbeat_interval_ms, second.beat().heartbeat_interval_ms] == [INTERVAL_MS] * 2


def test_a_consumer_whose_regular_expression_has_no_topics_yet_has_them_within_a_second() -> None:
    harness = GroupCoordinatorHarness(waiting_heartbeat_interval_ms=WAITING_MS)
    harness.topics = {"other": 1, "t-1": 1}
    first, second = ConsumerMember(harness, "a", regex="t-.*"), ConsumerMember(harness, "b", group="h", regex="u-.*")
    assert [first.beat().heartbeat_interval_ms, second.beat().heartbeat_interval_ms] == [WAITING_MS] * 2
    harness.clock.advance(WAITING_MS)
    assert (first.beat().heartbeat_interval_ms, first.owned) == (INTERVAL_MS, {"t-1": {0}})
    assert second.beat().heartbeat_interval_ms == INTERVAL_MS, "there is nothing to wait for"
    # The metadata of its topic arrives late: ten seconds have not passed since the last resolution.
    harness.topics = {**harness.topics, "u-1": 1}
    harness.clock.advance(INTERVAL_MS)
    assert second.beat().heartbeat_interval_ms == WAITING_MS
    harness.clock.advance(WAITING_MS)
    assert (second.beat().heartbeat_interval_ms, second.owned) == (INTERVAL_MS, {"u-1": {0}})


def test_a_streams_member_that_waits_for_its_tasks_comes_back_within_a_second() -> None:
    harness = GroupCoordinatorHarness(waiting_heartbeat_interval_ms=WAITING_MS)
    harness.topics = {"words": 2}
    first, second = (StreamsMember(harness, name, stateless("words")) for name in "ab")
    # until the initial rebalance delay is over
    assert [first.beat().heartbeat_interval_ms, second.beat().heartbeat_interval_ms] == [WAITING_MS] * 2
    harness.clock.advance(3_000)
    assert [first.beat().heartbeat_interval_ms, second.beat().heartbeat_interval_ms] == [INTERVAL_MS] * 2
    assert first.owned.active
    assert second.owned.active


def test_500_members_have_1000_partitions_within_seven_seconds_of_the_last_join() -> None:
    """Each member sends heartbeats as the Java client does: an interval after the last one, or at once when its partitions have
    changed.
    """
    harness = GroupCoordinatorHarness(waiting_heartbeat_interval_ms=WAITING_MS)
    harness.topics = {"t": 1_000}
    members = [ConsumerMember(harness, f"m-{n}") for n in range(500)]
    due = [(n, n) for n in range(len(members))]
    now_ms, last_join_ms = 0, len(members) - 1
    while now_ms <= last_join_ms or harness.shard.group(ConsumerGroup, "g").state is not ModernGroupState.STABLE:
        at_ms, n = heappop(due)
        harness.clock.advance(at_ms - now_ms)
        now_ms, before = at_ms, members[n].owned
        answer = members[n].beat()
        heappush(due, (now_ms + (1 if members[n].owned != before else answer.heartbeat_interval_ms), n))
    assert {len(member.owned["t"]) for member in members} == {2}
    # It takes one interval until the first member knows what it has to revoke, and a second until the others know that it did.
    assert now_ms - last_join_ms < 7_000
