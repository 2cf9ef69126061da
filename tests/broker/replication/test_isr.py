"""How far a leader's high watermark may go, and who counts as in sync (invariant 7)."""

from __future__ import annotations

from ottla.broker.replication.isr import ReplicaProgress, effective_min_isr, may_join, next_high_watermark, out_of_sync

LAG_MS = 30_000


def follower(broker_id: int, end: int, caught_up_ms: int = 0) -> ReplicaProgress:
    return ReplicaProgress(broker_id, log_end_offset=end, last_caught_up_ms=caught_up_ms)


def watermark(
    end: int, followers: list[ReplicaProgress], maximal_isr: set[int], joinable: set[int], now_ms: int = 0
) -> int:
    return next_high_watermark(end, followers, maximal_isr, joinable, now_ms, LAG_MS)


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
    assert effective_min_isr(2, 1) == 1
    assert effective_min_isr(2, 3) == 2


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
    assert out_of_sync({2: replica}, {1, 2}, 41_000, 40_000, LAG_MS) == [2]


def test_a_silent_follower_at_the_log_end_stays_in_sync() -> None:
    assert out_of_sync({2: follower(2, 10)}, {1, 2}, 10, 10 * LAG_MS, LAG_MS) == []


def test_a_replica_joins_only_past_the_watermark_and_into_the_leaders_epoch() -> None:
    assert may_join(follower(2, 10), {1}, True, high_watermark=10, epoch_start_offset=8)
    assert not may_join(follower(2, 9), {1}, True, high_watermark=10, epoch_start_offset=8)
    assert not may_join(follower(2, 10), {1}, True, high_watermark=5, epoch_start_offset=11)
    assert not may_join(follower(2, 10), {1}, False, high_watermark=10, epoch_start_offset=8)
    assert not may_join(follower(2, 10), {1, 2}, True, high_watermark=10, epoch_start_offset=8)
