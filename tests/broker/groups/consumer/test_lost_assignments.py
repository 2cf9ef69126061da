"""The response with an assignment is lost, and the member asks for none: librdkafka sends no full request after a timeout."""

from __future__ import annotations

from copy import copy

from tests.broker.groups.consumer.member import ConsumerMember
from tests.broker.groups.harness import GroupCoordinatorHarness

INTERVAL_MS = 5_000


def groups(partitions: int = 4) -> GroupCoordinatorHarness:
    harness = GroupCoordinatorHarness()
    harness.topics = {"t": partitions}
    return harness


def lose(member: ConsumerMember) -> int:
    """Send a heartbeat whose response is lost; return the epoch in that response."""
    answer = copy(member).beat()
    assert answer.assignment is not None
    return int(answer.member_epoch)


def joined(harness: GroupCoordinatorHarness) -> tuple[ConsumerMember, ConsumerMember]:
    """Return two members: the first one has all partitions, and the target gives half of them to the second one."""
    first, second = ConsumerMember(harness, "a"), ConsumerMember(harness, "b")
    first.beat()
    assert first.beat().assignment is None
    second.beat()
    harness.clock.advance(INTERVAL_MS)
    second.beat()
    return first, second


def test_what_a_member_has_to_give_up_is_sent_until_it_reports_that_it_did() -> None:
    """The member stays in its epoch meanwhile. In Kafka it is fenced after its rebalance timeout."""
    harness = groups()
    first, second = joined(harness)
    for _ in range(3):
        assert lose(first) == first.epoch
    assert first.beat().assignment is not None
    assert first.owned == {"t": {0, 1}}
    # The member's callback for revoked partitions takes its time: the member reports nothing new, and receives the same
    # assignment.
    assert first.beat(owned={"t": {0, 1, 2, 3}}).assignment is not None
    assert first.beat(owned={"t": {0, 1, 2, 3}}).assignment is not None
    assert first.beat(owned={"t": {0, 1}}).assignment is None
    assert second.beat().assignment is not None
    assert second.owned == {"t": {2, 3}}


def test_what_a_member_gets_from_others_in_the_same_epoch_is_sent_until_it_reports_that_it_has_it() -> None:
    """In Kafka no member would read these partitions until the next rebalance, because neither of the two is fenced."""
    harness = groups()
    first, second = joined(harness)
    first.beat()
    first.beat()
    epoch = second.epoch
    for _ in range(2):
        assert lose(second) == epoch
    assert second.beat().assignment is not None
    assert (second.epoch, second.owned) == (epoch, {"t": {2, 3}})
    assert second.beat().assignment is None, "it reports them"
    assert second.beat().assignment is None, "it reports nothing"


def test_nothing_is_sent_again_in_an_epoch_that_changes_nothing_for_the_member() -> None:
    harness = groups(partitions=1)
    first, second = joined(harness)
    epoch = first.epoch
    answers = [first.beat(), second.beat(), first.beat()]
    assert first.epoch > epoch
    assert [answer.assignment for answer in answers] == [None] * 3


def test_a_new_coordinator_does_not_know_what_members_have_reported_and_sends_each_its_assignment_once() -> None:
    harness = groups()
    member = ConsumerMember(harness, "a")
    member.beat()
    assert member.beat().assignment is None
    harness.restart()
    assert [member.beat().assignment is None for _ in range(3)] == [False, True, True]
    assert member.owned == {"t": {0, 1, 2, 3}}


def test_a_new_coordinator_sends_again_what_it_has_changed_itself() -> None:
    harness = groups()
    first, _ = joined(harness)
    harness.restart()
    lose(first)
    assert first.beat().assignment is not None
    assert first.owned == {"t": {0, 1}}


def test_what_was_lost_is_not_repeated_while_a_newer_target_is_due() -> None:
    """The target shrinks before the member has reported its first assignment. The next assignment that it gets is the smaller
    one, as in Kafka.
    """
    harness = groups()
    first, second = ConsumerMember(harness, "a"), ConsumerMember(harness, "b")
    lose(first)
    first.epoch = lose(first)
    second.beat()
    assert first.beat(owned={}).assignment is None
    harness.clock.advance(INTERVAL_MS)
    second.beat()
    assert first.beat(owned={}).assignment is not None
    assert first.owned == {"t": {0, 1}}
