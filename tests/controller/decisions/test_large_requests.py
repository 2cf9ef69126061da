"""Requests and searches with more partitions than one turn of the event loop has time for: each turn handles a bounded part.

The tests count partitions and measure no time: a loop over all partitions in one turn fails here on a machine of any speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import pytest

from ottla.controller.decisions.alter_partition import alter_partition
from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.directories import assign_replicas_to_directories
from ottla.controller.decisions.elections import (
    ELECTIONS_MAX,
    LOOKED_AT_MAX,
    PREFERRED,
    Candidates,
    elect_leaders,
    elect_unclean_leaders,
    return_to_preferred_leaders,
)
from ottla.controller.decisions.index import TopicIdPartition
from ottla.controller.decisions.leaving import PARTITIONS_PER_TURN
from ottla.controller.decisions.outcome import USER_RECORDS_MAX, Outcome, in_turns
from ottla.controller.decisions.reassignment import alter_partition_reassignments
from ottla.controller.decisions.topics import DELETED_PER_TURN, delete_topics
from ottla.controller.metadata.encoding import encode_metadata
from ottla.controller.metadata.image import REPLAY, WITHOUT_STATE, MetadataDelta
from ottla.controller.metadata.loader import UNITS_A_TURN, MetadataLoader
from ottla.controller.metadata.shared_map import Map
from ottla.controller.metadata.topics import CHANGE_UNITS, NO_LEADER, PartitionRegistration, TopicsImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics import metadata_records as r
from ottla.protocol.internal_topics.metadata_records import MetadataRecord, PartitionChangeRecord, RemoveTopicRecord
from ottla.protocol.messages import alter_partition as alter
from ottla.protocol.messages import alter_partition_reassignments as reassign
from ottla.protocol.messages import assign_replicas_to_dirs as assign
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.shared_structs import EntityData, PartitionIndex
from ottla.protocol.releases import KAFKA_4_4
from tests.controller.harness import DecisionHarness, directory, topic_id
from tests.controller.test_runtime import Batch

MANY = 2 * PARTITIONS_PER_TURN + 50
IN_TURNS = [PARTITIONS_PER_TURN, PARTITIONS_PER_TURN, 50]
ORDERS = topic_id("orders")


def proposal(cluster: DecisionHarness, *indexes: int) -> alter.AlterPartitionRequest:
    """Return a request in which broker 1 proposes all replicas as the ISR."""
    wanted = [
        alter.PartitionDataRequest(partition_index=index, leader_epoch=0, partition_epoch=0, new_isr=[1, 2, 3])
        for index in indexes
    ]
    topics = [alter.TopicDataRequest(topic_id=ORDERS, partitions=wanted)]
    return alter.AlterPartitionRequest(broker_id=1, broker_epoch=cluster.epoch(1), topics=topics)


def out_of_sync() -> DecisionHarness:
    cluster = DecisionHarness()
    cluster.topic("orders", "1 2 3", isr="1", partitions=MANY)
    return cluster


def test_the_isr_of_all_partitions_of_a_leader_changes_in_turns_with_one_answer() -> None:
    cluster = out_of_sync()
    answer = cluster.decide(alter_partition(cluster.state, proposal(cluster, *range(MANY))))
    assert cluster.turns == IN_TURNS
    results = answer.topics[0].partitions
    assert [(each.partition_index, each.error_code, each.isr) for each in results] == [
        (index, 0, [1, 2, 3]) for index in range(MANY)
    ]
    assert len(cluster.state.index.in_isr(3)) == MANY


def test_a_leader_that_registers_again_between_two_turns_changes_no_more() -> None:
    cluster = out_of_sync()
    request = proposal(cluster, *range(MANY))
    decide = in_turns(lambda state: alter_partition(state, request))
    assert cluster.decide(decide(cluster.state)) is None
    cluster.broker(1, epoch=500)
    with pytest.raises(KafkaError) as refused:
        decide(cluster.state)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert len(cluster.state.index.in_isr(3)) == PARTITIONS_PER_TURN


def test_partitions_of_a_topic_that_is_deleted_between_two_turns_are_unknown() -> None:
    cluster = out_of_sync()
    request = proposal(cluster, *range(MANY))
    decide = in_turns(lambda state: alter_partition(state, request))
    cluster.decide(decide(cluster.state))
    cluster.replay([RemoveTopicRecord(topic_id=ORDERS)])
    cluster.decide(decide(cluster.state))
    answer = cluster.decide(decide(cluster.state))
    codes = [ErrorCode(each.error_code).name for each in answer.topics[0].partitions]
    assert codes == ["NONE"] * PARTITIONS_PER_TURN + ["UNKNOWN_TOPIC_ID"] * (MANY - PARTITIONS_PER_TURN)


def test_replicas_are_reassigned_in_turns() -> None:
    cluster = DecisionHarness(brokers=4)
    cluster.topic("orders", "1 2 3", partitions=MANY)
    wanted = [reassign.ReassignablePartition(partition_index=index, replicas=[2, 3, 4]) for index in range(MANY)]
    request = reassign.AlterPartitionReassignmentsRequest(
        topics=[reassign.ReassignableTopic(name="orders", partitions=wanted)]
    )
    answer = cluster.decide(alter_partition_reassignments(cluster.state, request))
    assert cluster.turns == IN_TURNS
    assert [each.error_code for each in answer.responses[0].partitions] == [0] * MANY
    assert len(cluster.state.index.reassigning) == MANY


def test_directories_are_assigned_in_turns() -> None:
    cluster = DecisionHarness(brokers=2)
    cluster.broker(3, directories=2)
    cluster.topic("orders", "1 2 3", partitions=MANY)
    wanted = [PartitionIndex(partition_index=index) for index in range(MANY)]
    topics = [assign.TopicDataRequest(topic_id=ORDERS, partitions=wanted)]
    request = assign.AssignReplicasToDirsRequest(
        broker_id=3,
        broker_epoch=cluster.epoch(3),
        directories=[assign.DirectoryDataRequest(id=directory(3, 2), topics=topics)],
    )
    answer = cluster.decide(assign_replicas_to_directories(cluster.state, request))
    assert cluster.turns == IN_TURNS
    assert [each.error_code for each in answer.directories[0].topics[0].partitions] == [0] * MANY
    assert cluster.partition("orders", MANY - 1).directory(3) == directory(3, 2)


def test_an_election_of_all_partitions_is_decided_in_turns() -> None:
    cluster = DecisionHarness()
    cluster.topic("orders", "1 2 3", isr="2 1 3", partitions=2 * ELECTIONS_MAX + 5)
    cluster.topic("settled", "1 2 3", partitions=LOOKED_AT_MAX + 5)
    answer = cluster.decide(elect_leaders(cluster.state, ElectLeadersRequest(PREFERRED, None)))
    assert cluster.turns == [ELECTIONS_MAX, ELECTIONS_MAX, 5, 0]
    assert [(each.topic, len(each.partition_result)) for each in answer.replica_election_results] == [
        ("orders", 2 * ELECTIONS_MAX + 5),
        ("settled", 0),
    ]


def test_a_search_for_elections_looks_at_a_bounded_number_of_partitions_in_a_turn() -> None:
    """After an outage nearly every partition has another leader than its preferred one, which is not in sync yet."""
    cluster = DecisionHarness(elr=False)
    many = 2 * LOOKED_AT_MAX + 5
    cluster.topic("out of sync", "1 2 3", isr="2 3", partitions=many)
    cluster.topic("in sync", "1 2 3", isr="2 1 3", partitions=2)
    assert looked_at(cluster, return_to_preferred_leaders, cluster.state.index.imbalanced) == [
        LOOKED_AT_MAX,
        LOOKED_AT_MAX,
        7,
    ]
    cluster.replay(
        PartitionChangeRecord(partition_id=index, topic_id=topic_id("out of sync"), leader=NO_LEADER)
        for index in range(many)
    )
    assert looked_at(cluster, elect_unclean_leaders, cluster.state.index.leaderless_partitions) == [
        LOOKED_AT_MAX,
        LOOKED_AT_MAX,
        5,
    ]


def looked_at(
    cluster: DecisionHarness,
    search: Callable[[ControlState, Candidates], Outcome[bool]],
    every: Iterable[TopicIdPartition],
) -> list[int]:
    """Return the number of partitions of each turn."""
    candidates = Candidates()
    candidates.left = list(every)
    found = []
    while candidates.left:
        before = len(candidates.left)
        assert cluster.decide(search(cluster.state, candidates)) is bool(candidates.left)
        found.append(before - len(candidates.left))
    return found


def test_topics_are_deleted_in_turns_with_one_answer() -> None:
    cluster = DecisionHarness()
    names = [f"topic-{number:02}" for number in range(5)]
    for name in names:
        cluster.topic(name, "1 2 3", partitions=DELETED_PER_TURN // 2)
    results = cluster.decide(delete_topics(cluster.state, [(name, topic_id(name)) for name in names]))
    assert cluster.turns == [2, 2, 1]
    assert [(each.name, each.error_code) for each in results] == [(name, 0) for name in names]
    assert not len(cluster.image.topics) and not cluster.state.index.in_isr(1)


def test_a_request_for_more_deletions_than_a_batch_may_have_is_rejected_before_the_first() -> None:
    cluster = DecisionHarness()
    cluster.topic("orders")
    asked = [("orders", ORDERS)] * (USER_RECORDS_MAX + 1)
    with pytest.raises(KafkaError) as refused:
        cluster.decide(delete_topics(cluster.state, asked))
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    assert "orders" in cluster.image.topics


class Counted:
    """The partitions of a topic. They count how many of them are looked at."""

    touched = 0

    def __init__(self, partitions: Map[int, PartitionRegistration]) -> None:
        self._partitions = partitions

    def get(self, index: int) -> PartitionRegistration | None:
        Counted.touched += 1
        return self._partitions.get(index)

    def __getitem__(self, index: int) -> PartitionRegistration:
        Counted.touched += 1
        return self._partitions[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self._partitions)

    def __len__(self) -> int:
        return len(self._partitions)

    def values(self) -> list[PartitionRegistration]:
        """Return the values without counting: only a deleted topic needs them, and frees them in turns (test_freeing.py)."""
        return list(self._partitions.values())

    def items(self) -> Iterator[tuple[int, PartitionRegistration]]:
        for item in self._partitions.items():
            Counted.touched += 1
            yield item

    def update(self, changes: Mapping[int, PartitionRegistration]) -> Counted:
        return Counted(self._partitions.update(changes))


TOPICS, EACH = 50, 40
FIRST = topic_id("topic-00")
#: Each type of record, and the number of partitions, of 2,000, that it may touch in one turn of a loader or of the active
#: controller.
ONE_OF_EACH: dict[type[MetadataRecord], tuple[MetadataRecord, int]] = {
    type(record): (record, touched)
    for record, touched in [
        (r.RegisterBrokerRecord(broker_id=1, broker_epoch=900), 0),
        (r.UnregisterBrokerRecord(broker_id=1, broker_epoch=101), 0),
        (r.FenceBrokerRecord(id=1, epoch=101), 0),
        (r.UnfenceBrokerRecord(id=1, epoch=101), 0),
        (r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=101, fenced=1), 0),
        (r.RegisterControllerRecord(controller_id=1), 0),
        (r.UnregisterControllerRecord(controller_id=1), 0),
        (r.TopicRecord(name="new", topic_id=topic_id("new")), 0),
        (r.PartitionRecord(partition_id=EACH, topic_id=FIRST, replicas=[1], isr=[1], leader=1), 2),
        (r.PartitionChangeRecord(partition_id=0, topic_id=FIRST, isr=[1, 2]), 3),
        (r.RemoveTopicRecord(topic_id=FIRST), EACH),
        (r.ConfigRecord(resource_type=2, resource_name="topic-00", name="min.insync.replicas", value="2"), 0),
        (r.FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=0), 0),
        (r.ClientQuotaRecord(entity=[EntityData(entity_type="user", entity_name="u")], key="p", value=1.0), 0),
        (r.ProducerIdsRecord(broker_id=1, broker_epoch=101, next_producer_id=1_000), 0),
        (r.AccessControlEntryRecord(id=bytes(15) + b"1"), 0),
        (r.RemoveAccessControlEntryRecord(id=bytes(15) + b"1"), 0),
        (r.UserScramCredentialRecord(name="u", mechanism=1), 0),
        (r.RemoveUserScramCredentialRecord(name="u", mechanism=1), 0),
        (r.DelegationTokenRecord(token_id="t"), 0),
        (r.RemoveDelegationTokenRecord(token_id="t"), 0),
        (
            r.ClearElrRecord(),
            2 * (UNITS_A_TURN // CHANGE_UNITS),
        ),  # the record of another node: all are looked at, and changed ones are compared
    ]
}


@pytest.mark.parametrize("kind", [kind for kind in REPLAY if kind not in WITHOUT_STATE], ids=lambda kind: kind.__name__)
def test_a_record_touches_a_bounded_number_of_partitions_in_a_turn(kind: type[MetadataRecord]) -> None:
    record, bound = ONE_OF_EACH[kind]
    cluster = DecisionHarness()
    cluster.replay(_many_topics())
    image = cluster.state.image
    counted = Map({t.id: t._replace(partitions=Counted(t.partitions)) for t in image.topics})
    loader = MetadataLoader()
    loader.image = replace(image, topics=TopicsImage(counted, image.topics.names))
    turns = [0]
    Counted.touched = 0
    if (
        kind is not r.ClearElrRecord
    ):  # The active controller replays in the turn of its decision, and writes no such record.
        delta = MetadataDelta(loader.image)
        delta.replay(record)
        delta.apply(1, 1)
        cluster.state.index.update(delta)
        turns.append(Counted.touched)
    work = loader.handle_commit([Batch(0, encode_metadata([record], KAFKA_4_4.unstable_metadata_version), 1)])
    Counted.touched = 0
    for _ in work:
        turns.append(Counted.touched)
        Counted.touched = 0
    turns.append(Counted.touched)
    assert max(turns) == bound
    if bound > EACH:
        assert sum(turns) >= TOPICS * EACH, "every partition was visited"


def _many_topics() -> Iterator[MetadataRecord]:
    """Yield many topics, and a record for each later removal; each partition has an ELR."""
    yield r.RegisterControllerRecord(controller_id=1)
    yield r.AccessControlEntryRecord(id=bytes(15) + b"1")
    yield r.UserScramCredentialRecord(name="u", mechanism=1)
    yield r.DelegationTokenRecord(token_id="t")
    for number in range(TOPICS):
        name = f"topic-{number:02}"
        yield r.TopicRecord(name=name, topic_id=topic_id(name))
        for index in range(EACH):
            yield r.PartitionRecord(
                partition_id=index, topic_id=topic_id(name), replicas=[1, 2], isr=[1], leader=1,
                directories=[directory(1), directory(2)], eligible_leader_replicas=[2],
            )  # fmt: skip
