"""The leader holds some fetches of followers until more producers have written, and for a bounded time."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.fetch.session import FetchPartition, FetchSession
from ottla.broker.replication.delayed_produce import OffsetWait
from ottla.broker.replication.wakeups import BATCHED_MAX, HOLD_MS, PASSED_MAX, Wakeups
from tests.broker.replication.made_partition import made_partition
from tests.broker.replication.test_partition import Flushes
from tests.manual_clock import ManualClock

FEW = 1


class Fetch:
    """A fetch of a follower."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.made_ms = clock.now_ms
        self.woken_ms: list[int] = []
        self.fresh: dict[FetchPartition, None] = {}

    def wake(self) -> None:
        self.woken_ms.append(self.clock.now_ms)


class Leader:
    """A batching with its clock, and the fetches that were held."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.wakeups = Wakeups(self.clock)
        self.batching = self.wakeups.batching
        self.held: list[Fetch] = []

    @property
    def released(self) -> int:
        return sum(len(fetch.woken_ms) for fetch in self.held)

    @property
    def waiting(self) -> int:
        return self.batching.rounds.waiting

    def write(self, producers: int = 1) -> None:
        for _ in range(producers):
            self.batching.joined()

    def acknowledge(self, producers: int) -> None:
        self.batching.left(producers)

    def fetch(self, records: int = FEW) -> bool:
        """Let a follower fetch records; return True if the fetch is held."""
        fetch = Fetch(self.clock)
        is_held = self.batching.holds(fetch, records)
        if is_held:
            self.held.append(fetch)
        return is_held

    def turn(self) -> None:
        """End the present turn of the loop."""
        self.clock.advance(0)

    def round_of(self, producers: int) -> None:
        """Let this number of Produces wait; one fetch carries them, and the next one acknowledges them."""
        self.write(producers - self.waiting)
        self.fetch()
        self.turn()
        self.acknowledge(producers)


@pytest.fixture
def leader() -> Leader:
    return Leader()


def test_a_fetch_is_held_until_as_many_producers_wait_as_before_their_acknowledgement(leader: Leader) -> None:
    leader.round_of(8)
    leader.write(3)
    assert leader.fetch()
    leader.write(4)
    leader.turn()
    assert not leader.released
    leader.write()
    leader.turn()
    assert leader.released == 1


def test_the_fetches_of_all_followers_are_released_together(leader: Leader) -> None:
    leader.round_of(8)
    leader.write()
    assert [leader.fetch(), leader.fetch()] == [True, True]
    leader.write(7)
    leader.turn()
    assert leader.released == 2


def test_a_released_fetch_leaves_after_the_turn_and_so_carries_all_of_it(leader: Leader) -> None:
    leader.round_of(2)
    leader.write()
    leader.fetch()
    leader.write(5)
    assert not leader.released
    leader.turn()
    assert leader.released == 1


def test_producers_that_do_not_come_back_delay_a_fetch_by_a_millisecond_and_rarely(leader: Leader) -> None:
    """After each hold in vain twice as many rounds are not held."""
    held = []
    for round_ in range(500):
        leader.round_of(2)
        leader.write()
        if leader.fetch():
            held.append(round_)
            leader.clock.advance(HOLD_MS)
        leader.acknowledge(leader.waiting)
    assert leader.released == len(held)
    gaps = [later - earlier for earlier, later in pairwise(held)]
    assert gaps == sorted(gaps)
    assert gaps[-1] >= PASSED_MAX // 2


def test_producers_that_come_back_again_end_the_pause(leader: Leader) -> None:
    leader.round_of(8)
    leader.write()
    assert leader.fetch()
    leader.clock.advance(HOLD_MS)
    leader.acknowledge(1)
    for _ in range(PASSED_MAX):
        leader.round_of(8)
    for _ in range(3):
        leader.write()
        assert leader.fetch()
        leader.round_of(8)


def test_a_record_of_an_internal_topic_is_not_waited_for_and_ends_the_hold_of_the_fetch_that_carries_it(
    leader: Leader,
) -> None:
    """While fetches with a coordinator's records were held, each transaction waited for its own records: 120 transactions a
    second instead of 300.
    """
    topics = ("t", "__transaction_state")
    partitions = [made_partition(1, topic, 0, topic.encode(), leader.wakeups, Flushes(), 30_000) for topic in topics]
    fetches = [FetchPartition(each.topic, each.topic_id, 0, 0, 1 << 20) for each in partitions]
    session = FetchSession({(each.topic_id, 0): each for each in fetches}, replica_id=2, uses_topic_ids=True)
    session.waiting = fetch = Fetch(leader.clock)
    for wanted, partition in zip(fetches, partitions, strict=True):
        wanted.watch(partition.watchers)
    leader.round_of(5)
    client, internal = partitions
    client._committing.add(OffsetWait(1, lambda error: None))
    client.watchers.appended(0, 0, {})
    leader.turn()
    assert leader.waiting == 1 and not fetch.woken_ms
    internal._committing.add(OffsetWait(1, lambda error: None))
    internal.watchers.appended(0, 0, {})
    assert leader.waiting == 1
    leader.turn()
    assert fetch.woken_ms == [0]


@given(st.lists(st.sampled_from(["write", "acknowledge", "fetch", "turn", "wait"]), max_size=200))
def test_a_producer_that_waits_alone_is_never_delayed(steps: list[str]) -> None:
    leader = Leader()
    for step in steps:
        if step == "write" and not leader.waiting:
            leader.write()
        elif step == "acknowledge":
            leader.acknowledge(leader.waiting)
        elif step == "fetch":
            assert not leader.fetch()
        elif step in ("turn", "wait"):
            leader.clock.advance(step == "wait")


@given(
    st.lists(
        st.tuples(st.sampled_from(["write", "acknowledge", "fetch", "large", "turn", "wait"]), st.integers(1, 20)),
        max_size=200,
    )
)
def test_every_held_fetch_is_released_once_and_within_a_millisecond(steps: list[tuple[str, int]]) -> None:
    leader = Leader()
    for step, count in steps:
        if step == "write":
            leader.write(count)
        elif step == "acknowledge":
            leader.acknowledge(min(count, leader.waiting))
        elif step == "large":
            assert not leader.fetch(BATCHED_MAX + count - 1)
        elif step == "fetch":
            leader.fetch()
        else:
            leader.clock.advance(HOLD_MS if step == "wait" else 0)
    leader.clock.advance(HOLD_MS)
    for fetch in leader.held:
        [woken_ms] = fetch.woken_ms
        assert woken_ms - fetch.made_ms <= HOLD_MS
    assert not leader.clock.armed
