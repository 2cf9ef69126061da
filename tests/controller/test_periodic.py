"""Periodic tasks of the active controller on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ottla.controller.decisions.control_state import DelegationTokenSettings
from ottla.controller.decisions.delegation_tokens import EXPIRED_PER_TURN
from ottla.controller.periodic import NEXT_PART_MS, REJECTED_RETRY_MS
from ottla.protocol.internal_topics.metadata_records import DelegationTokenRecord, RegisterBrokerRecord
from tests.controller.test_runtime import Quorum

INTERVAL_MS = 60_000
SESSION_MS = 9_000
DAY_MS = 86_400_000
WITH_TOKENS = DelegationTokenSettings("the-key-of-the-cluster", check_interval_ms=INTERVAL_MS)


def with_tokens(settings: DelegationTokenSettings, lifetimes_ms: Iterable[int]) -> Quorum:
    """Return an active controller with a token for each lifetime, from t0 on."""
    quorum = Quorum(delegation_tokens=settings, metadata_max_idle_interval_ms=0, auto_leader_rebalance_enable=False)
    quorum.elect(1)
    now_ms = quorum.clock.wall_ms()
    tokens = [
        DelegationTokenRecord("User:a", "User:a", [], now_ms, now_ms + DAY_MS, now_ms + lifetime_ms, f"t{number}")
        for number, lifetime_ms in enumerate(lifetimes_ms)
    ]
    for start in range(0, len(tokens), 1_000):
        quorum.write(*tokens[start : start + 1_000])
    quorum.commit()
    return quorum


def known(quorum: Quorum) -> set[str]:
    return set(quorum.controller.image.delegation_tokens.tokens)


def test_expired_delegation_tokens_are_removed_at_each_interval_and_others_are_kept() -> None:
    quorum = with_tokens(WITH_TOKENS, [INTERVAL_MS - 1, INTERVAL_MS + 1, 2 * INTERVAL_MS])
    quorum.clock.advance(INTERVAL_MS - 1)
    assert known(quorum) == {"t0", "t1", "t2"}
    quorum.clock.advance(1)
    assert known(quorum) == {"t1", "t2"}
    quorum.clock.advance(INTERVAL_MS)
    assert known(quorum) == {"t2"}, "a token is valid up to the millisecond in which it expires"
    quorum.clock.advance(INTERVAL_MS)
    assert not known(quorum)
    quorum.commit()
    assert not quorum.loader.image.delegation_tokens.tokens


def test_tokens_that_are_too_many_for_one_turn_are_removed_in_several_and_not_at_the_next_interval() -> None:
    quorum = with_tokens(WITH_TOKENS, [0] * (2 * EXPIRED_PER_TURN + 1))
    quorum.clock.advance(INTERVAL_MS)
    for left in (EXPIRED_PER_TURN + 1, 1, 0):
        assert len(known(quorum)) == left
        quorum.clock.advance(NEXT_PART_MS)


def test_a_removal_that_cannot_be_written_is_tried_again_before_the_next_interval() -> None:
    quorum = with_tokens(WITH_TOKENS, [0])
    quorum.log.failing = True
    quorum.clock.advance(INTERVAL_MS)
    assert known(quorum) == {"t0"}
    quorum.log.failing = False
    quorum.clock.advance(REJECTED_RETRY_MS)
    assert not known(quorum)


@pytest.mark.parametrize("reason", ["without a secret key", "on a standby"])
def test_no_token_is_removed(reason: str) -> None:
    is_standby = reason == "on a standby"
    quorum = with_tokens(WITH_TOKENS if is_standby else DelegationTokenSettings(), [0])
    if is_standby:
        quorum.controller.leader_changed(9, 2)
    quorum.clock.advance(DAY_MS)
    assert known(quorum) == {"t0"}


def with_brokers(*broker_ids: int) -> Quorum:
    """Return a controller that was just elected again, so that the sessions of these brokers begin and end at the same time."""
    quorum = Quorum(
        broker_session_timeout_ms=SESSION_MS, metadata_max_idle_interval_ms=0, auto_leader_rebalance_enable=False
    )
    quorum.elect(1)
    quorum.write(*[RegisterBrokerRecord(broker_id=each, broker_epoch=each, fenced=False) for each in broker_ids])
    quorum.commit()
    quorum.controller.leader_changed(9, 2)
    quorum.elect(3)
    quorum.commit()
    return quorum


def unfenced(quorum: Quorum) -> list[int]:
    return sorted(each for each, broker in quorum.controller.image.cluster.brokers.items() if not broker.fenced)


def test_a_rack_of_brokers_whose_sessions_end_together_is_fenced_a_broker_a_turn() -> None:
    quorum = with_brokers(1, 2, 3)
    quorum.clock.advance(SESSION_MS)
    assert unfenced(quorum) == [1, 2, 3]
    quorum.clock.now_ms += 1
    for left in ([2, 3], [3], []):
        quorum.clock.turn()
        assert unfenced(quorum) == left


def test_a_broker_whose_heartbeat_is_read_while_others_are_fenced_stays() -> None:
    quorum = with_brokers(1, 2, 3)
    quorum.clock.advance(SESSION_MS)
    quorum.clock.now_ms += 1
    quorum.clock.turn()
    quorum.controller.heartbeats.touch(2, False, 0, quorum.clock.mono_ms())
    quorum.clock.turn()
    quorum.clock.turn()
    assert unfenced(quorum) == [2]
    quorum.clock.advance(SESSION_MS + 1)
    assert unfenced(quorum) == []


def test_brokers_are_fenced_after_the_disk_failed_for_a_moment() -> None:
    quorum = with_brokers(1, 2)
    quorum.clock.advance(SESSION_MS)
    quorum.log.failing = True
    quorum.clock.advance(1)
    quorum.log.failing = False
    assert unfenced(quorum) == [1, 2]
    quorum.clock.advance(REJECTED_RETRY_MS)
    assert unfenced(quorum) == []


def test_a_controller_that_loses_its_term_while_it_fences_leaves_the_rest_to_its_successor() -> None:
    quorum = with_brokers(1, 2)
    quorum.clock.advance(SESSION_MS)
    quorum.clock.now_ms += 1
    quorum.clock.turn()
    quorum.controller.leader_changed(9, 4)
    quorum.clock.advance(SESSION_MS)
    assert not quorum.clock.armed
