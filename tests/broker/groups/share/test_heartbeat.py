"""Members of share groups join, are assigned, fall silent and leave; share partitions get their state before they are assigned."""

from __future__ import annotations

import pytest

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.broker.groups.cluster import id_of
from tests.broker.groups.share.harness import CLIENT, ShareGroupHarness

MINUTE_MS = 60_000


@pytest.fixture
def groups() -> ShareGroupHarness:
    return ShareGroupHarness()


def test_partitions_are_assigned_once_their_state_is_initialized(groups: ShareGroupHarness) -> None:
    member = groups.join("m")
    assert (member.epoch, member.assigned) == (2, {})
    groups.advance()
    member.beat()
    assert (member.epoch, member.assigned) == (3, {"orders": [0, 1, 2]})
    assert member.beat().assignment is None
    assert sorted(key.partition for key in groups.states.runtime.shard(0).states) == [0, 1, 2]


def test_partitions_are_shared_when_there_are_more_members_than_partitions() -> None:
    groups = ShareGroupHarness({"orders": 1})
    members = [groups.join(f"m{n}") for n in range(3)]
    groups.advance()
    for member in members:
        member.beat()
    groups.advance()
    for member in members:
        member.beat()
    assert [member.assigned for member in members] == [{"orders": [0]}] * 3


def test_a_topic_that_grows_is_assigned_whole(groups: ShareGroupHarness) -> None:
    member = groups.join("m")
    groups.advance()
    member.beat()
    groups.topics["orders"] = 4
    member.beat()
    groups.advance()
    member.beat()
    assert member.assigned == {"orders": [0, 1, 2, 3]}


def test_a_topic_that_is_created_later_is_assigned(groups: ShareGroupHarness) -> None:
    member = groups.join("m", "later")
    groups.advance()
    groups.topics["later"] = 1
    member.beat()
    groups.advance()
    member.beat()
    assert member.assigned == {"later": [0]}


def test_a_topic_that_comes_within_the_assignment_interval_is_one_epoch(groups: ShareGroupHarness) -> None:
    """The only member does not wait for other members, but for the state of the new partitions. In Kafka the epoch is 4,
    too.
    """
    member = groups.join("m", "orders", "later")
    groups.advance()
    member.beat()
    groups.topics["later"] = 2
    member.beat()
    assert (member.epoch, member.assigned) == (3, {"orders": [0, 1, 2]})
    groups.advance(10)
    member.beat()
    assert (member.epoch, member.assigned) == (4, {"orders": [0, 1, 2], "later": [0, 1]})


def test_a_deleted_topic_is_forgotten(groups: ShareGroupHarness) -> None:
    member = groups.join("m")
    groups.advance()
    member.beat()
    del groups.topics["orders"]
    groups.coordinator.on_topics_deleted(["orders"], [id_of("orders")])
    member.beat()
    assert member.assigned == {}
    assert not groups.group.state_partitions.initialized


def test_a_member_gives_up_a_topic_that_it_has_left_before_the_next_target_is_due(groups: ShareGroupHarness) -> None:
    groups.topics["other"] = 2
    first, second = groups.join("m1", "orders", "other"), groups.join("m2", "orders", "other")
    for _ in range(3):
        groups.advance()
        for member in (first, second):
            member.beat()
    groups.advance()
    groups.join("m3")  # makes a new target, so that the next one is not due
    known_before = second.epoch
    second.beat()
    epoch = second.epoch
    assert second.assigned.keys() == {"orders", "other"}
    assert epoch > known_before
    second.beat("orders")
    assert (second.assigned.keys(), second.epoch) == ({"orders"}, epoch)
    second.epoch = known_before
    assert not second.beat().error_code, "it is still known by its epoch before"


def test_a_member_that_falls_silent_gives_its_partitions_to_the_others(groups: ShareGroupHarness) -> None:
    first, second = groups.join("m1"), groups.join("m2")
    for _ in range(20):
        groups.advance(5_000)
        first.beat()
    assert list(groups.group.members) == ["m1"]
    assert first.assigned == {"orders": [0, 1, 2]}
    assert second.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_whose_removal_cannot_be_written_is_removed_after_another_session(
    groups: ShareGroupHarness,
) -> None:
    member = groups.join("m")
    groups.log.refuse = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    groups.advance(MINUTE_MS)
    assert "m" in groups.group.members
    groups.log.refuse = None
    groups.advance(MINUTE_MS)
    assert not groups.group.members
    assert groups.heartbeat("m", member.epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_leaves_is_gone_at_once(groups: ShareGroupHarness) -> None:
    member = groups.join("m")
    assert member.leave().member_epoch == -1
    assert member.leave().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.group.state.value == "Empty"


def test_a_new_coordinator_knows_members_epochs_and_assignments(groups: ShareGroupHarness) -> None:
    member = groups.join("m")
    groups.advance()
    member.beat()
    epoch = member.epoch
    groups.restart()
    assert member.beat().error_code == ErrorCode.NONE
    assert member.epoch == epoch
    assert groups.heartbeat("m", epoch + 5).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_members_that_a_new_coordinator_loads_have_sessions_that_end(groups: ShareGroupHarness) -> None:
    groups.join("m")
    groups.restart()
    groups.advance(MINUTE_MS)
    assert not groups.group.members


def test_the_previous_epoch_is_accepted_and_older_ones_are_fenced(groups: ShareGroupHarness) -> None:
    member = groups.join("m")
    groups.advance()
    member.beat()
    assert groups.heartbeat("m", member.epoch - 1).error_code == ErrorCode.NONE
    assert groups.heartbeat("m", member.epoch - 2).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert groups.heartbeat("m", member.epoch + 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_full_request_is_answered_with_the_assignment_whose_answer_was_lost(groups: ShareGroupHarness) -> None:
    """A member sends all fields after any error. The response to a short request has the assignment only if that request
    changes it, as in Kafka.
    """
    member = groups.join("m")
    groups.advance()
    before = member.epoch
    assert groups.heartbeat("m", before).assignment is not None, "this is the answer that is lost"
    groups.restart()
    assert groups.heartbeat("m", before).assignment is None
    member.beat("orders")
    assert (member.epoch, member.assigned) == (before + 1, {"orders": [0, 1, 2]})


def test_a_group_that_is_full_takes_its_own_members_only() -> None:
    groups = ShareGroupHarness(share_group_max_size=1)
    groups.join("m1")
    assert groups.heartbeat("m2", 0, "orders").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert groups.heartbeat("m1", 0, "orders").error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    "fields",
    [
        {"member_id": ""},
        {"group_id": ""},
        {"rack_id": ""},
        {"subscribed_topic_names": None},
        {"subscribed_topic_names": []},
        {"member_epoch": -2},
    ],
)
def test_a_malformed_request_is_refused_and_creates_no_group(
    groups: ShareGroupHarness, fields: dict[str, object]
) -> None:
    request = ShareGroupHeartbeatRequest("g", "m", 0, None, ["orders"])
    for name, value in fields.items():
        setattr(request, name, value)
    response = groups.answered(groups.share.heartbeat(request, CLIENT))
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert not groups.shard.groups


def test_only_a_joining_member_creates_a_group(groups: ShareGroupHarness) -> None:
    assert groups.heartbeat("m", 3).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert groups.heartbeat("m", -1).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_the_id_of_a_group_of_another_kind_is_refused_both_ways(groups: ShareGroupHarness) -> None:
    groups.client("classic", group="c").join()
    assert groups.heartbeat("m", 0, "orders", group_id="c").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    groups.join("m")
    assert groups.client("classic").join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_an_initialization_that_fails_begins_again_with_a_later_heartbeat(groups: ShareGroupHarness) -> None:
    groups.is_persisting = False
    member = groups.join("m")
    for _ in range(10):
        groups.advance(10_000)
        member.beat()
    assert not groups.group.state_partitions.initialized
    groups.is_persisting = True
    for _ in range(10):
        groups.advance(10_000)
        member.beat()
    assert member.assigned == {"orders": [0, 1, 2]}


def test_a_new_coordinator_finishes_an_initialization_that_the_former_one_began(groups: ShareGroupHarness) -> None:
    groups.is_persisting = False
    member = groups.join("m")
    assert groups.group.state_partitions.initializing
    groups.restart()
    groups.is_persisting = True
    member.beat()
    groups.advance()
    member.beat()
    assert member.assigned == {"orders": [0, 1, 2]}


def test_the_topics_of_a_member_that_has_left_are_not_in_the_hash_of_the_group() -> None:
    """Otherwise the heartbeat after the next change of any topic would begin one more rebalance."""
    groups = ShareGroupHarness({"orders": 3, "other": 1})
    groups.join("a")
    alone = groups.group.metadata_hash
    other = groups.join("b", "other")
    assert groups.group.metadata_hash not in (0, alone)
    other.leave()
    assert groups.group.metadata_hash == alone
