"""The bound of a leader's high watermark, and the replicas that count as in sync (invariant 7)."""

from __future__ import annotations

from types import SimpleNamespace

from ottla.broker.replication.isr import InSyncReplicas, ReplicaProgress
from tests.manual_clock import ManualClock

LAG_MS = 30_000


def follower(broker_id: int, end: int, caught_up_ms: int = 0) -> ReplicaProgress:
    return ReplicaProgress(broker_id, log_end_offset=end, last_caught_up_ms=caught_up_ms)


class Candidates:
    """The brokers that the controller accepts in an ISR."""

    def __init__(self, live: set[int]) -> None:
        self._live = live

    def may_be_in_sync(self, replica_id: int, broker_epoch: int) -> bool:
        return replica_id in self._live

    def submit(self, partition: object) -> None:
        raise AssertionError("nothing is proposed here")

    def close(self) -> None:
        return None


def in_sync(members: set[int], followers: list[ReplicaProgress], live: set[int]) -> InSyncReplicas:
    isr = InSyncReplicas(SimpleNamespace(node_id=1), LAG_MS, Candidates(live))
    isr.commit(1, members)
    isr.followers.update({each.broker_id: each for each in followers})
    return isr


def watermark(
    end: int, followers: list[ReplicaProgress], maximal_isr: set[int], joinable: set[int], now_ms: int = 0
) -> int:
    clock = ManualClock()
    clock.advance(now_ms - clock.mono_ms())
    for each in followers:
        each.broker_epoch = 1
    return in_sync(maximal_isr, followers, joinable).next_high_watermark(end, clock)


def test_the_watermark_is_the_slowest_of_the_maximal_isr() -> None:
    assert watermark(10, [follower(2, 7), follower(3, 9)], {1, 2, 3}, set()) == 7
    assert watermark(10, [follower(2, 7), follower(3, 9)], {1, 3}, set(), now_ms=LAG_MS + 1) == 9


def test_a_proposed_member_holds_the_watermark_back_before_the_controller_answered() -> None:
    assert watermark(10, [follower(2, 7)], {1}, set(), now_ms=LAG_MS + 1) == 10
    assert watermark(10, [follower(2, 7)], {1, 2}, set(), now_ms=LAG_MS + 1) == 7


def test_a_caught_up_replica_that_may_join_is_waited_for() -> None:
    assert watermark(10, [follower(2, 7)], {1}, {2}, now_ms=LAG_MS - 1) == 7
    assert watermark(10, [follower(2, 7)], {1}, {2}, now_ms=LAG_MS + 1) == 10


def test_min_isr_asks_for_no_more_replicas_than_there_are() -> None:
    isr = in_sync({1}, [], set())
    isr.require(2, 1)
    assert (isr.min_size, isr.is_under_min) == (1, False)
    isr.require(2, 3)
    assert (isr.min_size, isr.is_under_min) == (2, True)


def test_a_follower_that_reached_the_end_of_the_previous_fetch_was_caught_up_then() -> None:
    replica = ReplicaProgress(2)
    replica.record_fetch(0, 0, leader_end_offset=100, now_ms=1_000, broker_epoch=1)
    replica.record_fetch(100, 0, leader_end_offset=200, now_ms=2_000, broker_epoch=1)
    assert replica.last_caught_up_ms == 1_000
    replica.record_fetch(200, 0, leader_end_offset=200, now_ms=3_000, broker_epoch=1)
    assert replica.last_caught_up_ms == 3_000


def test_a_follower_that_always_lags_behind_falls_out_though_it_fetches() -> None:
    replica = ReplicaProgress(2)
    for second in range(40):
        replica.record_fetch(second, 0, leader_end_offset=1_000 + second * 1_000, now_ms=second * 1_000, broker_epoch=1)
    assert in_sync({1, 2}, [replica], set()).out_of_sync(41_000, 40_000) == [replica]


def test_a_silent_follower_at_the_log_end_stays_in_sync() -> None:
    assert in_sync({1, 2}, [follower(2, 10)], set()).out_of_sync(10, 10 * LAG_MS) == []


def test_a_replica_joins_only_past_the_watermark_and_into_the_leaders_epoch() -> None:
    def may_join(end: int, isr: set[int], live: set[int], high_watermark: int, epoch_start_offset: int) -> bool:
        replica = follower(2, end)
        return in_sync(isr, [replica], live).may_join(replica, high_watermark, epoch_start_offset)

    assert may_join(10, {1}, {2}, high_watermark=10, epoch_start_offset=8)
    assert not may_join(9, {1}, {2}, high_watermark=10, epoch_start_offset=8)
    assert not may_join(10, {1}, {2}, high_watermark=5, epoch_start_offset=11)
    assert not may_join(10, {1}, set(), high_watermark=10, epoch_start_offset=8)
    assert not may_join(10, {1, 2}, {2}, high_watermark=10, epoch_start_offset=8)
