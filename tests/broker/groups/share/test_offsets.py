"""Offsets of share groups are described, altered and deleted, and groups are deleted with their states."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.broker.groups.group_descriptions import SHARE_GROUPS
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
)
from ottla.server.network.context import Reply
from tests.broker.groups.cluster import id_of
from tests.broker.groups.share.harness import END_OFFSET, ShareGroupHarness


@pytest.fixture
def groups() -> ShareGroupHarness:
    return ShareGroupHarness()


@pytest.fixture
def empty(groups: ShareGroupHarness) -> ShareGroupHarness:
    """Empty the group: it had a member, and its share partitions are initialized."""
    member = groups.join("m")
    groups.advance()
    member.leave()
    return groups


def alter(groups: ShareGroupHarness, offsets: dict[int, int], topic: str = "orders", group_id: str = "g") -> Any:
    m = alter_share_group_offsets
    rows = [m.AlterShareGroupOffsetsRequestPartition(partition, offset) for partition, offset in offsets.items()]
    request = m.AlterShareGroupOffsetsRequest(group_id, [m.AlterShareGroupOffsetsRequestTopic(topic, rows)])
    return groups.answered(groups.share.alter_offsets(request))


def delete(groups: ShareGroupHarness, *topics: str, group_id: str = "g", within_ms: int = 1_000) -> Any:
    m = delete_share_group_offsets
    request = m.DeleteShareGroupOffsetsRequest(group_id, [m.DeleteShareGroupOffsetsRequestTopic(t) for t in topics])
    return groups.answered(groups.share.delete_offsets(request), within_ms)


def describe(groups: ShareGroupHarness, topics: dict[str, list[int]] | None = None) -> dict[str, dict[int, Any]]:
    """Return topic -> partition -> (start offset, lag)."""
    m = describe_share_group_offsets
    rows = None
    if topics is not None:
        rows = [m.DescribeShareGroupOffsetsRequestTopic(name, partitions) for name, partitions in topics.items()]
    answer = groups.share.describe_offsets(m.DescribeShareGroupOffsetsRequestGroup("g", rows))
    return {
        topic.topic_name: {row.partition_index: (row.start_offset, row.lag) for row in topic.partitions}
        for topic in groups.answered(answer).topics
    }


def test_offsets_are_set_and_described_with_their_lag(empty: ShareGroupHarness) -> None:
    answer = alter(empty, {0: 40, 1: 0})
    assert [row.error_code for row in answer.responses[0].partitions] == [ErrorCode.NONE] * 2
    assert describe(empty) == {"orders": {0: (40, END_OFFSET - 40), 1: (0, END_OFFSET), 2: (-1, -1)}}
    assert describe(empty, {"orders": [0, 9], "no": [0]}) == {
        "orders": {0: (40, END_OFFSET - 40), 9: (-1, -1)},
        "no": {0: (-1, -1)},
    }


def test_offsets_of_named_partitions_are_described_by_a_broker_that_does_not_coordinate_the_group(
    empty: ShareGroupHarness,
) -> None:
    """Kafka 4.3.1 asks the group's coordinator only when a request is for all partitions of the group."""
    alter(empty, {0: 40})
    empty.coordinator.runtime.on_resigned(0)
    assert describe(empty, {"orders": [0, 2], "no": [0]}) == {
        "orders": {0: (40, END_OFFSET - 40), 2: (-1, -1)},
        "no": {0: (-1, -1)},
    }
    whole = empty.share.describe_offsets(describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup("g", None))
    assert empty.answered(whole).error_code == ErrorCode.NOT_COORDINATOR


def test_altered_offsets_begin_a_new_state_epoch(empty: ShareGroupHarness) -> None:
    before = {key.partition: state.state_epoch for key, state in empty.states.runtime.shard(0).states.items()}
    alter(empty, {0: 40})
    after = {key.partition: state.state_epoch for key, state in empty.states.runtime.shard(0).states.items()}
    assert after[0] == empty.group.epoch > before[0]
    assert after[1] == before[1]


def test_altering_creates_a_group_as_its_first_member_would(groups: ShareGroupHarness) -> None:
    alter(groups, {0: 7})
    member = groups.join("m")
    groups.advance()
    member.beat()
    assert member.assigned == {"orders": [0, 1, 2]}
    assert describe(groups)["orders"][0] == (7, END_OFFSET - 7)


def test_partitions_that_do_not_exist_and_negative_offsets_are_refused_one_by_one(empty: ShareGroupHarness) -> None:
    answer = alter(empty, {0: 5, 1: -1, 9: 5})
    codes = [row.error_code for row in answer.responses[0].partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    answer = alter(empty, {0: 5}, topic="no")
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_group_with_members_keeps_its_offsets(groups: ShareGroupHarness) -> None:
    groups.join("m")
    assert alter(groups, {0: 5}).error_code == ErrorCode.NON_EMPTY_GROUP
    assert delete(groups, "orders").error_code == ErrorCode.NON_EMPTY_GROUP
    (result,) = groups.answered(groups.deletion.delete(["g"]))
    assert result.error_code == ErrorCode.NON_EMPTY_GROUP
    assert "g" in groups.shard.groups


def test_deleted_offsets_are_gone_and_the_group_begins_again_without(empty: ShareGroupHarness) -> None:
    answer = delete(empty, "orders", "no")
    assert [(row.topic_name, row.error_code) for row in answer.responses] == [
        ("orders", ErrorCode.NONE),
        ("no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert describe(empty) == {}
    assert not empty.states.runtime.shard(0).states
    assert delete(empty, "orders").responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_whose_deletion_failed_is_deleted_again(empty: ShareGroupHarness) -> None:
    empty.is_persisting = False
    assert delete(empty, "orders", within_ms=60_000).responses[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    empty.restart()
    empty.is_persisting = True
    assert delete(empty, "orders").responses[0].error_code == ErrorCode.NONE
    assert not empty.group.state_partitions.deleting


def test_unknown_groups_and_the_empty_id(groups: ShareGroupHarness) -> None:
    assert delete(groups, "orders").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert delete(groups, "orders", group_id="").error_code == ErrorCode.INVALID_GROUP_ID
    assert alter(groups, {0: 5}, group_id="").error_code == ErrorCode.INVALID_GROUP_ID
    assert describe(groups) == {}


@pytest.mark.parametrize("is_empty", [True, False])
def test_offsets_of_consumers_are_neither_committed_to_a_share_group_nor_deleted_from_it(
    groups: ShareGroupHarness, is_empty: bool
) -> None:
    member = groups.join("m")
    epoch = member.epoch
    if is_empty:
        member.leave()
    consumer = groups.client("c")
    before = groups.log.end_offset(groups.tp)
    for who, generation in (("", -1), ("m", epoch)):
        for version in (2, 8, 9):
            answer = consumer.commit(offsets={("orders", 0): 7}, member=who, generation=generation, version=version)
            assert [row.error_code for row in answer.topics[0].partitions] == [ErrorCode.GROUP_ID_NOT_FOUND]
    for topic in ("orders", "no"):
        assert consumer.delete_offsets(partitions=[(topic, 0)]).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert [row.committed_offset for row in consumer.fetch(partitions=[("orders", 0)]).topics[0].partitions] == [-1]
    assert groups.log.end_offset(groups.tp) == before


def test_a_topic_is_in_use_by_a_share_group_as_long_as_a_member_is_subscribed_to_it(groups: ShareGroupHarness) -> None:
    members = [groups.join(name, "orders") for name in "ab"]
    members[0].leave()
    assert groups.group.is_subscribed_to("orders") and not groups.group.is_subscribed_to("no")
    members[1].leave()
    assert not groups.group.is_subscribed_to("orders")


def test_a_deleted_group_leaves_no_state_behind(empty: ShareGroupHarness) -> None:
    _, listed = empty.answered(empty.coordinator.list([], ["share"]))
    assert [(group.group_id, group.group_state) for group in listed] == [("g", "Empty")]
    results = empty.answered(empty.deletion.delete(["g", "no"]))
    assert {result.group_id: result.error_code for result in results} == {
        "g": ErrorCode.NONE,
        "no": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert not empty.states.runtime.shard(0).states
    empty.restart()
    assert not empty.shard.groups


def test_a_description_names_the_members_and_what_they_have(groups: ShareGroupHarness) -> None:
    member = groups.join("m")
    groups.advance()
    member.beat()
    found, unknown = groups.answered(groups.coordinator.describe_modern(["g", "no"], SHARE_GROUPS))
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 3, 3)
    (described,) = found.members
    assert described.subscribed_topic_names == ["orders"]
    assert described.assignment.topic_partitions[0].partitions == [0, 1, 2]
    assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_an_altered_offset_stays_though_an_earlier_initialization_of_the_partition_failed(
    groups: ShareGroupHarness,
) -> None:
    groups.is_persisting = False
    member = groups.join("m")
    member.leave()
    groups.advance(20_000)
    m = alter_share_group_offsets
    topic = m.AlterShareGroupOffsetsRequestTopic("orders", [m.AlterShareGroupOffsetsRequestPartition(0, 7)])
    answer = groups.share.alter_offsets(m.AlterShareGroupOffsetsRequest("g", [topic]))
    while groups.group.state_partitions.initializing.get(id_of("orders"), frozenset()) > {0}:
        groups.advance()
    groups.is_persisting = True
    assert groups.answered(answer).responses[0].partitions[0].error_code == ErrorCode.NONE
    member = groups.join("m")
    groups.advance()
    assert describe(groups)["orders"][0] == (7, END_OFFSET - 7)


@pytest.fixture
def two_topics() -> ShareGroupHarness:
    """Return an empty group that had a member, and whose share partitions of both topics are initialized."""
    groups = ShareGroupHarness({"orders": 1, "slow": 1})
    member = groups.join("m", "orders", "slow")
    groups.advance()
    member.leave()
    return groups


def test_a_topic_that_a_member_takes_up_while_another_topic_is_still_deleted_keeps_its_new_state(
    two_topics: ShareGroupHarness,
) -> None:
    """Before the fix the end of the deletion removed the partitions with the new state from the group, and the next heartbeat
    began a third state.
    """
    groups = two_topics
    groups.stalled = {"slow"}
    m = delete_share_group_offsets
    rows = [m.DeleteShareGroupOffsetsRequestTopic(name) for name in ("orders", "slow")]
    answer = groups.share.delete_offsets(m.DeleteShareGroupOffsetsRequest("g", rows))
    groups.advance()
    member = groups.join("m", "orders")
    groups.advance()
    member.beat()
    assert member.assigned == {"orders": [0]} and isinstance(answer, Reply) and not answer.done
    groups.stalled.clear()
    response = groups.answered(answer)
    assert [row.error_code for row in response.responses] == [ErrorCode.NONE, ErrorCode.NONE]
    member.beat()
    assert member.assigned == {"orders": [0]}
    state = groups.group.state_partitions
    assert (state.initialized, state.initializing, state.deleting) == ({id_of("orders"): {0}}, {}, frozenset())


def test_an_initialization_that_ends_after_the_state_was_deleted_again_counts_for_nothing() -> None:
    """Before the fix the partition counted as one with a state: its leader was rejected for ever, and no heartbeat began a new
    initialization.
    """
    groups = ShareGroupHarness({"orders": 1, "slow": 1})
    groups.stalled = {"slow"}
    groups.join("m", "orders", "slow").leave()
    groups.advance()
    assert alter(groups, {0: 7}).responses[0].partitions[0].error_code == ErrorCode.NONE
    assert delete(groups, "orders").responses[0].error_code == ErrorCode.NONE
    groups.stalled.clear()
    groups.advance(2_000)
    assert groups.group.state_partitions.initialized.keys() == {id_of("slow")}
    member = groups.join("m", "orders")
    groups.advance()
    member.beat()
    assert member.assigned == {"orders": [0]} and describe(groups)["orders"] == {0: (-1, -1)}


def test_a_deletion_that_a_deposed_coordinator_tries_again_does_not_take_the_state_that_members_have_since(
    empty: ShareGroupHarness,
) -> None:
    """DeleteShareGroupState carries no epoch. Before the fix it was retried for half a minute: meanwhile the next coordinator
    had begun a new state.
    """
    groups = empty
    groups.stalled = {"orders"}
    m = delete_share_group_offsets
    request = m.DeleteShareGroupOffsetsRequest("g", [m.DeleteShareGroupOffsetsRequestTopic("orders")])
    deposed: list[Any] = []
    deletion = groups.share.delete_offsets(request)
    assert isinstance(deletion, Reply)
    deletion.when_done(deposed.append)
    groups.advance(10_000)
    groups.restart()
    groups.stalled.clear()
    assert delete(groups, "orders", within_ms=0).responses[0].error_code == ErrorCode.NONE
    member = groups.join("m")
    groups.advance(0)
    member.beat()
    assert member.assigned == {"orders": [0, 1, 2]} and not deposed
    groups.advance(60_000)
    assert len(deposed) == 1 and len(groups.states.runtime.shard(0).states) == 3


def test_a_topic_that_is_deleted_while_the_ends_of_its_logs_are_asked_for_has_no_lag(empty: ShareGroupHarness) -> None:
    """The leaders are asked by the topic's name: the end offset may belong to another topic, which was created since."""
    ask = empty.share.end_offsets

    def deleting(partitions: Any) -> Any:
        empty.topics.clear()
        return ask(partitions)

    alter(empty, {0: 7})
    empty.share = replace(empty.share, end_offsets=deleting)
    assert describe(empty)["orders"][0] == (7, -1)
